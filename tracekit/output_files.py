"""Output files: checked before the work begins, and written atomically."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tracekit.errors import OutputError
from tracekit.messages import outputs

# Characters of the file's name in the name of its temporary file; with four bytes a character, names hold 255 bytes.
MAX_NAME_LENGTH = 60


def check_writable(path: Path, *, force: bool) -> None:
    """Refuse an output that cannot be written.

    Args:
        path: Output file.
        force: Whether to overwrite an existing file.

    Raises:
        OutputError: It exists already or is not a file, its directory does not exist or is not writable.
    """
    try:
        exists, is_file, in_directory = path.exists(), path.is_file(), path.parent.is_dir()
        may_write = os.access(path.parent, os.W_OK)
    except OSError as error:
        raise OutputError(outputs.OUTPUT_NOT_WRITTEN(path=str(path), reason=error.strerror)) from error
    if exists and not is_file:
        raise OutputError(outputs.OUTPUT_NOT_A_FILE(path=str(path)))
    if exists and not force:
        raise OutputError(outputs.OUTPUT_EXISTS(path=str(path)))
    if not in_directory:
        raise OutputError(outputs.OUTPUT_NO_DIRECTORY(path=str(path), directory=str(path.parent)))
    if not may_write:
        raise OutputError(outputs.OUTPUT_DIRECTORY_READ_ONLY(path=str(path), directory=str(path.parent)))


def refuse_input_overwrite(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output that would overwrite one of the inputs.

    Raises:
        OutputError: It is one of the inputs.
    """
    if any(one.exists() and one.samefile(path) for one in inputs if path.exists()):
        raise OutputError(outputs.OUTPUT_IS_INPUT(path=str(path)))


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` once it is complete, and is removed on failure.

    Raises:
        OutputError: It cannot be written.
    """
    partial = path.with_name(f".{path.name[:MAX_NAME_LENGTH]}.{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise OutputError(outputs.OUTPUT_NOT_WRITTEN(path=str(path), reason=error.strerror)) from error
    finally:
        with suppress(OSError):  # nothing can be removed from a read-only disk
            partial.unlink(missing_ok=True)
