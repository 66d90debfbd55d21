"""Finished uploads and reports: a directory by default, any fsspec URL otherwise. Keys are made of our own ids."""

import shutil
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem


class Files:
    """Files by key, such as ``uploads/3f…`` and ``jobs/3f…/9a…/report.html``.

    Args:
        url: Directory or fsspec URL.
    """

    def __init__(self, url: str) -> None:
        self._system, root = fsspec.url_to_fs(url)
        self._root = str(root).rstrip("/")
        self._is_local = isinstance(self._system, LocalFileSystem)

    def keep(self, path: Path, key: str) -> None:
        """Move a file of this machine to a key; it is there wholly or not at all.

        Raises:
            OSError: The disk is full, or the place can't be reached.
        """
        target = self._at(key)
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
        self._system.get_file(self._at(key), str(path))
        return path

    def has(self, key: str) -> bool:
        """Whether there is such a file."""
        return bool(self._system.isfile(self._at(key)))

    def open(self, key: str) -> BinaryIO:
        """The content of a key.

        Raises:
            FileNotFoundError: There is no such key.
        """
        file: BinaryIO = self._system.open(self._at(key), "rb")
        return file

    def remove(self, key: str) -> None:
        """Remove a file, or everything below a key; fine if there is nothing."""
        for place in (self._at(key), f"{self._at(key)}.partial"):
            if self._system.exists(place):
                self._system.rm(place, recursive=True)

    def below(self, key: str) -> list[str]:
        """Names directly below a key."""
        if not self._system.isdir(self._at(key)):
            return []
        self._system.invalidate_cache()
        entries: list[Any] = self._system.ls(self._at(key), detail=False)
        return [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in entries]

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}"
