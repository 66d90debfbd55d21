"""A disk on which one operation fails: every open, write, rename, sync and removal in turn, as SQLite tests itself.

Operations are those of Python and of polars on paths in one directory; a write that fails has written half.
"""

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl

RENAMES = ("replace", "rename")
OTHERS = ("mkdir", "unlink", "remove", "rmdir", "truncate")


class FailingDisk:
    """Counts the operations in a directory, and lets one of them fail.

    Args:
        directory: The directory, with all below it.
        fail_at: Number of the operation that fails, from 0; ``None`` for none.
        error: Number of the error.
        for_good: Whether all further operations fail too, as on a disk that is gone.

    Attributes:
        operations: Names of the operations so far.
    """

    def __init__(self, directory: Path, fail_at: int | None, error: int, for_good: bool) -> None:
        self.operations: list[str] = []
        self._directory = os.path.realpath(directory)
        self._fail_at, self._error, self._for_good = fail_at, error, for_good

    def covers(self, path: object) -> bool:
        """Return whether a path lies in the directory."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.path.realpath(os.fsdecode(path)).startswith(self._directory)

    def note(self, operation: str, path: object) -> None:
        """Count an operation.

        Raises:
            OSError: It is the one that fails.
        """
        number = len(self.operations)
        self.operations.append(operation)
        if self._fail_at is not None and (number == self._fail_at or (self._for_good and number > self._fail_at)):
            raise OSError(self._error, os.strerror(self._error), str(path))


class _File:
    """An open file whose writes, flushes and closing are operations."""

    def __init__(self, file: Any, disk: FailingDisk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: Any) -> int:
        try:
            self._disk.note("write", self._file.name)
        except OSError:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            raise
        return int(self._file.write(data))

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def failing_disk(
    directory: Path, fail_at: int | None = None, error: int = errno.ENOSPC, *, for_good: bool = False
) -> Iterator[FailingDisk]:
    """Let one operation in a directory fail; arguments as for :class:`FailingDisk`."""
    disk = FailingDisk(directory, fail_at, error, for_good)
    opened = _wrap_open(disk)
    with (
        mock.patch.multiple(os, **dict(_wrap_functions(disk))),
        mock.patch("builtins.open", opened),
        mock.patch.object(io, "open", opened),
        mock.patch.object(pl.DataFrame, "write_parquet", _wrap_parquet(disk)),
    ):
        yield disk


def _wrap_functions(disk: FailingDisk) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in (*RENAMES, *OTHERS):
        yield name, _wrap_path_function(disk, name, getattr(os, name))
    real_open, real_sync = os.open, os.fsync

    def open_descriptor(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if disk.covers(path) and flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            disk.note("open", path)
        return int(real_open(path, flags, *args, **options))

    def sync(descriptor: int) -> None:
        name = os.path.realpath(f"/proc/self/fd/{descriptor}")
        if disk.covers(name):
            disk.note("fsync", name)
        real_sync(descriptor)

    yield "open", open_descriptor
    yield "fsync", sync


def _wrap_path_function(disk: FailingDisk, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def run(path: Any, *args: Any, **options: Any) -> Any:
        if disk.covers(path) and options.get("dir_fd") is None:
            disk.note(name, path)
        return real(path, *args, **options)

    return run


def _wrap_open(disk: FailingDisk) -> Callable[..., Any]:
    real = io.open

    def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not (set(mode) & set("wax+")) or not disk.covers(file):
            return real(file, mode, *args, **options)
        disk.note("open", file)
        return _File(real(file, mode, *args, **options), disk)

    return opened


def _wrap_parquet(disk: FailingDisk) -> Callable[..., None]:
    real = pl.DataFrame.write_parquet

    def write(frame: pl.DataFrame, file: Any, **options: Any) -> None:
        if not disk.covers(file):
            real(frame, file, **options)
            return
        try:
            disk.note("write", file)
        except OSError:
            Path(file).write_bytes(b"PAR1")
            raise
        real(frame, file, **options)

    return write


def fail_in_turn(
    directory: Path,
    prepare: Callable[[], None],
    action: Callable[[], None],
    check: Callable[[str, int], None],
    *,
    in_both_ways: bool = True,
) -> list[str]:
    """Run an action with each of its operations failing in turn: once with EIO, then on a disk that stays full.

    Args:
        directory: The directory whose operations fail.
        prepare: Puts the directory into the state from which the action begins.
        action: What is tried; it may raise nothing but what ``check`` expects of it.
        check: Looks at what is left, with the name of the operation that failed and the error.
        in_both_ways: Whether each operation fails in both ways, rather than in one of them by turns.

    Returns:
        Names of the operations of a run in which none fails.
    """
    prepare()
    with failing_disk(directory) as disk:
        action()
    for fail_at, operation in enumerate(disk.operations):
        ways = ((errno.EIO, False), (errno.ENOSPC, True))
        for error, for_good in ways if in_both_ways else ways[fail_at % 2 :][:1]:
            prepare()
            with failing_disk(directory, fail_at, error, for_good=for_good):
                action()
            check(operation, error)
    return disk.operations
