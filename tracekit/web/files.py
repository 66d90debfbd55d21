"""Finished uploads and reports: a directory by default, any fsspec URL otherwise. Keys are made of our own ids."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tracekit.web.errors import FullError, UnreachableError

log = logging.getLogger("tracekit.web")


class Files:
    """Files by key, such as ``uploads/3f…`` and ``jobs/3f…/9a…/report.html``.

    Args:
        url: Directory or fsspec URL. Nothing it lists is remembered: other servers change it too.

    Every method raises :class:`UnreachableError` where the place doesn't answer, or answers what can't be helped here.
    """

    def __init__(self, url: str) -> None:
        self._system, root = fsspec.url_to_fs(url, use_listings_cache=False)
        self._root = str(root).rstrip("/")
        self._is_local = isinstance(self._system, LocalFileSystem)

    def keep(self, path: Path, key: str) -> None:
        """Move a file of this machine to a key; it is there wholly or not at all.

        Raises:
            OSError: The disk is full, or there is no such file.
        """
        target = self._at(key)
        with _reached():
            if not self._is_local:
                self._system.put_file(str(path), target)
                path.unlink()
                return
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            partial = Path(f"{target}.partial")
            shutil.move(path, partial)
            partial.replace(target)

    def fetch(self, key: str, directory: Path) -> Path:
        """A file of this machine with the content of a key: itself, or a copy in ``directory``.

        Raises:
            FileNotFoundError: There is no such key.
        """
        if self._is_local:
            return Path(self._at(key))
        path = directory / key.replace("/", "-")
        with _reached():
            self._system.get_file(self._at(key), str(path))
        return path

    def has(self, key: str) -> bool:
        """Whether there is such a file."""
        try:
            with _reached():
                return bool(self._system.info(self._at(key))["type"] == "file")
        except FileNotFoundError:
            return False

    def open(self, key: str) -> BinaryIO:
        """The content of a key.

        Raises:
            FileNotFoundError: There is no such key.
        """
        with _reached():
            file: BinaryIO = self._system.open(self._at(key), "rb")
        return file

    def remove(self, key: str) -> None:
        """Remove a file, or everything below a key; fine if there is nothing."""
        for place in (self._at(key), f"{self._at(key)}.partial"):
            with _reached(), suppress(FileNotFoundError):
                self._system.rm(place, recursive=True)

    def below(self, key: str) -> list[str]:
        """Names directly below a key."""
        entries: list[Any] = []
        with _reached(), suppress(FileNotFoundError):
            entries = self._system.ls(self._at(key), detail=False)
        return [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in entries]

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}"


@contextmanager
def _reached() -> Iterator[None]:
    """File systems fail in ways of their own; what can be said of them is one thing."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and FullError.of(error):
            raise
        log.warning("files can't be reached: %s", type(error).__name__)
        raise UnreachableError(
            "The server can't reach the place where it keeps files.", "Try again later, or tell whoever runs it."
        ) from error
