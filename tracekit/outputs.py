"""A file to write: refused before the work where it can't be, and there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracekit.errors import OutputError


def check(path: Path, *, force: bool) -> None:
    """Refuse an output that can't be written.

    Args:
        path: Where to write.
        force: Whether a file there may be overwritten.

    Raises:
        OutputError: It exists already or is no file, or its directory doesn't exist.
    """
    if path.exists() and not path.is_file():
        raise OutputError(f"{path} is no file, and writing would put one in its place.", "Name another with -o.")
    if path.exists() and not force:
        raise OutputError(f"{path} exists already.", "Overwrite it with --force.")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: there is no directory {path.parent}.")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of ``path`` once it is complete; gone if it isn't.

    Raises:
        OutputError: It can't be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
