"""Output files: checked before the work begins, and written atomically."""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tracekit.errors import OutputError
from tracekit.messages import requests

# Characters of the file's name in the name of its temporary file; with four bytes a character, names hold 255 bytes.
MAX_NAME_LENGTH = 60
MAX_NAME_BYTES = 255
"""Bytes of a file's name that file systems take."""


def refuse_standard_output(path: Path) -> None:
    """Refuse ``-``, which stands for standard output.

    Raises:
        OutputError: It is that.
    """
    if str(path) == "-":
        raise OutputError(requests.OUTPUT_NEEDS_FILE())


def check_writable(path: Path, *, force: bool) -> None:
    """Refuse an output that cannot be written.

    Args:
        path: Output file.
        force: Whether to overwrite an existing file.

    Raises:
        OutputError: It exists already or is not a file, its directory does not exist or is not writable, or it stands
            for standard output.
    """
    refuse_standard_output(path)
    try:
        directory = _follow_links(path).parent
        exists, is_file, in_directory = path.exists(), path.is_file(), directory.is_dir()
        may_write = os.access(directory, os.W_OK)
    except OSError as error:
        raise _make_write_error(path, error) from error
    if exists and not is_file:
        raise OutputError(requests.OUTPUT_NOT_A_FILE(path=str(path)))
    if exists and not force:
        raise OutputError(requests.OUTPUT_EXISTS(path=str(path)))
    if not in_directory:
        raise OutputError(requests.OUTPUT_NO_DIRECTORY(path=str(path), directory=str(directory)))
    if not may_write:
        raise OutputError(requests.OUTPUT_DIRECTORY_READ_ONLY(path=str(path), directory=str(directory)))


def check_folder(path: Path, *, force: bool) -> None:
    """Refuse an output folder that can't be made, or that exists already unless ``force`` allows to write into it.

    Raises:
        OutputError: It exists already, is no folder, or what it would lie in can't be written to.
    """
    if path.is_dir():
        if not force:
            raise OutputError(requests.OUTPUT_EXISTS(path=str(path)))
        check_writable(path / "_", force=True)
    elif path.exists():
        raise OutputError(requests.OUTPUT_NOT_A_FOLDER(path=str(path)))
    else:
        check_writable(path, force=force)


def make_folder(path: Path) -> None:
    """Make a folder if there is none.

    Raises:
        OutputError: It can't be made.
    """
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(requests.DIRECTORY_NOT_MADE(path=str(path), reason=error.strerror or str(error))) from error


def fit_name(stem: str, suffix: str) -> str:
    """Return a file's name, its stem cut as far as file systems need it."""
    while len(os.fsencode(stem + suffix)) > MAX_NAME_BYTES:
        stem = stem[:-1]
    return stem + suffix


def refuse_input_overwrite(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output that would overwrite one of the inputs.

    Raises:
        OutputError: It is one of the inputs.
    """
    if any(one.exists() and one.samefile(path) for one in inputs if path.exists()):
        raise OutputError(requests.OUTPUT_IS_INPUT(path=str(path)))


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` once it is complete and on the disk, and is removed on failure.

    Of a symbolic link the target is replaced, and the link stays.

    Raises:
        OutputError: It cannot be written.
    """
    with _open_partial(path) as partial:
        with _name_write_errors(path):
            yield partial.file
        partial.flush()
        partial.put_in_place()


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files, all or none: none is put in its place before all are complete and on the disk.

    Raises:
        OutputError: One cannot be written.
    """
    with ExitStack() as stack:
        partials = [stack.enter_context(_open_partial(path, number)) for number, path in enumerate(contents)]
        for partial, content in zip(partials, contents.values(), strict=True):
            with _name_write_errors(partial.path):
                partial.file.write_bytes(content)
            partial.flush()
        for partial in partials:
            partial.put_in_place()


@dataclass(frozen=True, slots=True)
class _Partial:
    """A file that isn't in its place yet.

    Attributes:
        path: Its place.
        target: The file that the place leads to.
        file: Where it is meanwhile.
    """

    path: Path
    target: Path
    file: Path

    def flush(self) -> None:
        """Wait until it is on the disk."""
        with _name_write_errors(self.path):
            _flush_file(self.file)

    def put_in_place(self) -> None:
        """Replace what is in its place."""
        with _name_write_errors(self.path):
            self.file.replace(self.target)
            _flush_directory(self.target.parent)


@contextmanager
def _open_partial(path: Path, number: int = 0) -> Iterator[_Partial]:
    """Yield a file in the making, which is removed where it isn't put in its place."""
    with _name_write_errors(path):
        target = _follow_links(path)
    partial = target.with_name(f".{target.name[:MAX_NAME_LENGTH]}.{os.getpid()}{f'.{number}' if number else ''}")
    try:
        yield _Partial(path, target, partial)
    finally:
        with suppress(OSError):  # nothing can be removed from a read-only disk
            partial.unlink(missing_ok=True)


@contextmanager
def _name_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _make_write_error(path, error) from error


def _follow_links(path: Path) -> Path:
    """Return the file that a path leads to.

    Raises:
        OSError: Its links lead in a circle.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def _make_write_error(path: Path, error: OSError) -> OutputError:
    return OutputError(requests.OUTPUT_NOT_WRITTEN(path=str(path), reason=error.strerror or str(error)))


def _flush_file(path: Path) -> None:
    """Wait until a file is on the disk: a rename may get there before what it names."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _flush_directory(directory: Path) -> None:
    """Wait until a rename is on the disk, where directories can be opened; the file is complete either way."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
