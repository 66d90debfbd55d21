"""Store finished uploads and reports: in a directory by default, at an fsspec URL otherwise.

Keys contain only ids that the server made.
"""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tracekit.messages import front_ends
from tracekit.web.errors import DiskFullError, UnreachableError

log = logging.getLogger("tracekit.web")


class Files:
    """Files by key, such as ``uploads/3f…`` and ``jobs/3f…/9a…/report.html``.

    Args:
        url: Directory or fsspec URL. Listings aren't cached, as other servers change the files too.

    Every method raises :class:`UnreachableError` if the file store doesn't respond or reports an unexpected error.
    """

    def __init__(self, url: str) -> None:
        self._system, root = fsspec.url_to_fs(url, use_listings_cache=False)
        self._root = str(root).rstrip("/")
        self._is_local = isinstance(self._system, LocalFileSystem)

    def keep(self, path: Path, key: str) -> None:
        """Move a local file to a key, atomically.

        Raises:
            OSError: The disk is full, or the file doesn't exist.
        """
        target = self._build_path(key)
        with _wrap_storage_errors():
            if not self._is_local:
                self._system.put_file(str(path), target)
                path.unlink()
                return
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            partial = Path(f"{target}.partial")
            shutil.move(path, partial)
            partial.replace(target)

    def fetch(self, key: str, directory: Path) -> Path:
        """Return a local file with the content of a key: the stored file, or a copy in ``directory``.

        Raises:
            FileNotFoundError: There is no such key.
        """
        if self._is_local:
            return Path(self._build_path(key))
        path = directory / key.replace("/", "-")
        with _wrap_storage_errors():
            self._system.get_file(self._build_path(key), str(path))
        return path

    def has(self, key: str) -> bool:
        """Return whether the file exists."""
        try:
            with _wrap_storage_errors():
                return bool(self._system.info(self._build_path(key))["type"] == "file")
        except FileNotFoundError:
            return False

    def open(self, key: str) -> BinaryIO:
        """Open the content of a key.

        Raises:
            FileNotFoundError: There is no such key.
        """
        with _wrap_storage_errors():
            file: BinaryIO = self._system.open(self._build_path(key), "rb")
        return file

    def remove(self, key: str) -> None:
        """Remove a file, or everything below a key; do nothing if there is none."""
        for place in (self._build_path(key), f"{self._build_path(key)}.partial"):
            with _wrap_storage_errors(), suppress(FileNotFoundError):
                self._system.rm(place, recursive=True)

    def list_names(self, key: str) -> list[str]:
        """Return the names directly below a key."""
        entries: list[Any] = []
        with _wrap_storage_errors(), suppress(FileNotFoundError):
            entries = self._system.ls(self._build_path(key), detail=False)
        return [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in entries]

    def _build_path(self, key: str) -> str:
        return f"{self._root}/{key}"


@contextmanager
def _wrap_storage_errors() -> Iterator[None]:
    """Turn the various errors of file systems into one :class:`UnreachableError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and DiskFullError.from_os_error(error):
            raise
        log.warning("files can't be reached: %s", type(error).__name__)
        raise UnreachableError(front_ends.FILES_UNREACHABLE()) from error
