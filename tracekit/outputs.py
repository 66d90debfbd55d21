"""A file to write: refused before the work where it can't be, and there whole or not at all."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tracekit.errors import OutputError

# Of the name, in that of the file to which it is written first; with four bytes a character names have 255.
LONGEST_NAME = 60


def check(path: Path, *, force: bool) -> None:
    """Refuse an output that can't be written.

    Args:
        path: Where to write.
        force: Whether a file there may be overwritten.

    Raises:
        OutputError: It exists already or is no file, its directory doesn't exist, or it can't be there.
    """
    try:
        exists, is_file, in_directory = path.exists(), path.is_file(), path.parent.is_dir()
        may_write = os.access(path.parent, os.W_OK)
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror}.") from error
    if exists and not is_file:
        raise OutputError(f"{path} is no file, and writing would put one in its place.", "Name another with -o.")
    if exists and not force:
        raise OutputError(f"{path} exists already.", "Overwrite it with --force.")
    if not in_directory:
        raise OutputError(f"{path}: there is no directory {path.parent}.")
    if not may_write:
        raise OutputError(f"{path}: nothing can be written to the directory {path.parent}.", "Name another with -o.")


def apart(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output that would take the place of what is read.

    Raises:
        OutputError: It is one of the inputs.
    """
    if any(one.exists() and one.samefile(path) for one in inputs if path.exists()):
        raise OutputError(f"{path} is what is read, and would be overwritten.", "Name another with -o.")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of ``path`` once it is complete; gone if it isn't.

    Raises:
        OutputError: It can't be written.
    """
    partial = path.with_name(f".{path.name[:LONGEST_NAME]}.{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror}.") from error
    finally:
        with suppress(OSError):  # of a disk that is read-only nothing can be removed either
            partial.unlink(missing_ok=True)
