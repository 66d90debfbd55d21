"""Uploads: the received data is in one file each, and the file's size is the number of bytes received."""

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from anyio import to_thread

from tracekit.messages import web_errors
from tracekit.web.database import Database, DatabaseRow
from tracekit.web.errors import ConflictError, DiskFullError, LockedError, NotFoundError, TooLargeError
from tracekit.web.files import Files
from tracekit.web.settings import Settings

MAX_NAME_CHARS = 200
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """One uploaded file.

    Attributes:
        id: Random, 128 bits.
        name: File name from its owner; never part of a path.
        length: Size in bytes; ``None`` until the upload is complete if the client didn't announce it.
        expires: Time when the upload is deleted, in seconds since the epoch.
    """

    id: str
    name: str
    length: int | None
    expires: float

    @property
    def key(self) -> str:
        """Key of the complete file."""
        return f"uploads/{self.id}"


def clean_name(name: str) -> str:
    """Return the end of a name without control characters, which is safe to show."""
    kept = "".join(char for char in name.replace("\\", "/") if char.isprintable())
    return kept.strip("/ ")[-MAX_NAME_CHARS:] or "unnamed"


class UploadStore:
    """All uploads of a store."""

    def __init__(self, settings: Settings, database: Database, files: Files) -> None:
        self._settings, self._database, self._files = settings, database, files
        self._spool = settings.data / "arriving"
        self._spool.mkdir(parents=True, exist_ok=True)

    def create(self, owner: str, name: str, length: int | None) -> Upload:
        """Create an empty upload for a file.

        Raises:
            TooLargeError: The file is larger than allowed.
            FullError: The disk has no space for the file.
        """
        self._check_size(clean_name(name), length or 0)
        self._check_room(length or 0)
        upload = Upload(secrets.token_hex(16), clean_name(name), length, time.time() + self._settings.keep_upload_s)
        self._database.run(
            "INSERT INTO uploads (id, owner, name, length, expires) VALUES (?, ?, ?, ?, ?)",
            upload.id, owner, upload.name, length, upload.expires,
        )  # fmt: skip
        with _translate_disk_errors():
            self._get_path(upload).touch()
        if length == 0:
            self._complete(upload)
        return upload

    def get(self, owner: str, upload_id: str) -> Upload:
        """Return one of the owner's uploads that doesn't belong to a job yet.

        Raises:
            NotFoundError: The owner has no such upload.
        """
        rows = self._database.run(
            "SELECT * FROM uploads WHERE id = ? AND owner = ? AND job IS NULL AND expires > ?",
            upload_id, owner, time.time(),
        )  # fmt: skip
        if not rows:
            raise NotFoundError(web_errors.UPLOAD_MISSING())
        return _from_row(rows[0])

    def get_offset(self, upload: Upload) -> int:
        """Return the number of bytes received."""
        try:
            return self._get_path(upload).stat().st_size
        except FileNotFoundError:
            if upload.length is not None and self._files.has(upload.key):
                return upload.length
            raise NotFoundError(web_errors.UPLOAD_MISSING()) from None

    async def append(self, upload: Upload, offset: int | None, chunks: AsyncIterator[bytes]) -> int:
        """Append data to the received part; data received before a broken connection is stored.

        Args:
            upload: The upload.
            offset: Position of the data in the file; ``None`` for a whole file whose size isn't announced.
            chunks: The data.

        Returns:
            The number of bytes received in total.

        Raises:
            ConflictError: ``offset`` isn't the number of bytes received so far.
            LockedError: Another request writes to the upload.
            TooLargeError: The data exceeds the announced or the allowed size.
            FullError: The disk is full, or would have less free space than ``min_free_bytes``.
        """
        try:
            file = self._get_path(upload).open("r+b")
        except FileNotFoundError:
            return self._check_offset(await to_thread.run_sync(self.get_offset, upload), offset)
        with file:
            _lock_file(file)
            at = self._check_offset(file.seek(0, os.SEEK_END), offset or 0)
            limit = self._settings.max_upload_bytes if upload.length is None else upload.length
            async for block in _join_blocks(chunks):
                if at + len(block) > limit:
                    raise self._create_too_large_error(upload)
                self._check_room(len(block))
                await to_thread.run_sync(_write_block, file, block)
                at += len(block)
            if offset is None:
                await to_thread.run_sync(self._save_length, upload, at)
            if offset is None or at == upload.length:
                await to_thread.run_sync(self._complete, upload)
        return at

    def copy(self, owner: str, path: Path) -> Upload:
        """Copy a local file as a complete upload."""
        upload = self.create(owner, path.name, path.stat().st_size)
        with _translate_disk_errors():
            shutil.copyfile(path, self._get_path(upload))
        self._complete(upload)
        return upload

    def remove(self, upload: Upload) -> None:
        """Delete the upload with all its data."""
        self._get_path(upload).unlink(missing_ok=True)
        self._files.remove(upload.key)
        self._database.run("DELETE FROM uploads WHERE id = ?", upload.id)

    def take(self, owner: str, upload_ids: list[str], job: str, until: float) -> list[Upload]:
        """Assign complete uploads to a job; they are deleted with it.

        Raises:
            NotFoundError: The owner has no such upload.
            ConflictError: An upload is incomplete, or belongs to a job already.
        """
        uploads = [self.get(owner, upload_id) for upload_id in dict.fromkeys(upload_ids)]
        for upload in uploads:
            if not self._ensure_complete(upload):
                raise ConflictError(web_errors.UPLOAD_INCOMPLETE(name=upload.name))
        marks = ", ".join("?" * len(uploads))
        taken = self._database.run(
            f"UPDATE uploads SET job = ?, expires = ? WHERE id IN ({marks}) AND job IS NULL RETURNING id",
            job, until, *(upload.id for upload in uploads),
        )  # fmt: skip
        if len(taken) < len(uploads):
            self.release(job)
            raise ConflictError(web_errors.UPLOAD_TAKEN())
        return uploads

    def release(self, job: str) -> None:
        """Release the uploads of a job that could not be created."""
        until = time.time() + self._settings.keep_upload_s
        self._database.run("UPDATE uploads SET job = NULL, expires = ? WHERE job = ?", until, job)

    def list_for_job(self, job: str) -> list[Upload]:
        """Return the uploads of a job."""
        rows = self._database.run("SELECT * FROM uploads WHERE job = ? ORDER BY name, id", job)
        return [_from_row(row) for row in rows]

    def delete_expired(self) -> None:
        """Delete expired uploads, and files that no upload refers to."""
        for row in self._database.run("SELECT * FROM uploads WHERE expires <= ?", time.time()):
            self.remove(_from_row(row))
        on_disk = {name: self._spool / name for name in os.listdir(self._spool)}
        kept = self._files.list_names("uploads")
        known = {row["id"] for row in self._database.run("SELECT id FROM uploads")}
        for name in on_disk.keys() - known:
            on_disk[name].unlink(missing_ok=True)
        for name in {name.split(".")[0] for name in kept} - known:
            self._files.remove(f"uploads/{name}")

    def _ensure_complete(self, upload: Upload) -> bool:
        """Return whether the upload is complete; finish it if a process died before moving the complete file."""
        if not self._files.has(upload.key) and self.get_offset(upload) == upload.length:
            self._complete(upload)
        return self._files.has(upload.key)

    def _save_length(self, upload: Upload, length: int) -> None:
        self._database.run("UPDATE uploads SET length = ? WHERE id = ?", length, upload.id)

    def _complete(self, upload: Upload) -> None:
        with _translate_disk_errors(), suppress(FileNotFoundError):  # another process has already moved it
            self._files.keep(self._get_path(upload), upload.key)

    def _check_offset(self, at: int, offset: int | None) -> int:
        if at != offset:
            raise ConflictError(web_errors.UPLOAD_OFFSET_WRONG(received=at))
        return at

    def _check_size(self, name: str, size: int) -> None:
        if size > self._settings.max_upload_bytes:
            raise TooLargeError(web_errors.UPLOAD_TOO_LARGE(name=name, max_bytes=self._settings.max_upload_bytes))

    def _check_room(self, size: int) -> None:
        """Check the free space for each block: others upload at once, and not every client announces a size."""
        if size > shutil.disk_usage(self._spool).free - self._settings.min_free_bytes:
            raise DiskFullError(web_errors.DISK_WITHOUT_ROOM())

    def _create_too_large_error(self, upload: Upload) -> TooLargeError:
        if upload.length is not None:
            return TooLargeError(web_errors.UPLOAD_LONGER_THAN_ANNOUNCED(length=upload.length))
        self._check_size(upload.name, self._settings.max_upload_bytes + 1)
        raise AssertionError

    def _get_path(self, upload: Upload) -> Path:
        return self._spool / upload.id


def _from_row(row: DatabaseRow) -> Upload:
    return Upload(row["id"], row["name"], row["length"], row["expires"])


async def _join_blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join the chunks into larger blocks; yield the rest even if the connection breaks."""
    block = bytearray()
    try:
        async for chunk in chunks:
            block += chunk
            if len(block) >= BLOCK_BYTES:
                yield bytes(block)
                block.clear()
    except Exception:
        if block:
            yield bytes(block)
        raise
    if block:
        yield bytes(block)


def _write_block(file: BinaryIO, block: bytes) -> None:
    with _translate_disk_errors():
        _pour(file, block)


def _pour(file: BinaryIO, block: bytes) -> None:
    file.write(block)
    file.flush()


def _lock_file(file: BinaryIO) -> None:
    """Lock the file; the system releases the lock when the file is closed or the process dies."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(web_errors.UPLOAD_LOCKED()) from None


@contextmanager
def _translate_disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = DiskFullError.from_os_error(error)
        if full is not None:
            raise full from error
        raise
