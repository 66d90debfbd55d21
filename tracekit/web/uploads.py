"""Uploads: the received data is in one file each, and the file's size is the number of bytes received."""

import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import BinaryIO

from anyio import to_thread
from sqlalchemy import ColumnElement, Connection, RowMapping, delete, insert, select, update

from tracekit.messages import front_ends
from tracekit.web import quotas
from tracekit.web.database import UPLOADS, Database
from tracekit.web.errors import ConflictError, DiskFullError, LockedError, NotFoundError, TooLargeError, WebError
from tracekit.web.files import Files
from tracekit.web.quotas import Requester
from tracekit.web.settings import Settings

ALGORITHMS = ("sha1", "sha256")
CHECKED_BLOCK_BYTES = 1 << 20


class ChecksumError(WebError):
    """Data that isn't what its client sent."""

    status = 460


@dataclass(frozen=True, slots=True)
class Checksum:
    """What a request's data must come to.

    Attributes:
        algorithm: One of ``ALGORITHMS``.
        digest: The digest of the data.
    """

    algorithm: str
    digest: bytes


async def verify_blocks(
    blocks: AsyncIterator[bytes], checksum: Checksum, directory: Path, check_room: Callable[[int], None]
) -> AsyncIterator[bytes]:
    """Yield the blocks once all have arrived and are what they should be; yield none otherwise.

    Args:
        blocks: The data; if the connection breaks, its error is raised.
        checksum: What the data must come to.
        directory: Where the data waits, in a file without a name.
        check_room: Called with the size of each block before it is written.

    Raises:
        ChecksumError: The data was damaged on its way.
        OSError: The disk is full.
    """
    digest = hashlib.new(checksum.algorithm)
    with tempfile.TemporaryFile(dir=directory) as file:
        async for block in blocks:
            check_room(len(block))
            digest.update(block)
            await to_thread.run_sync(file.write, block)
        if digest.digest() != checksum.digest:
            raise ChecksumError(front_ends.UPLOAD_CHECKSUM_WRONG())
        file.seek(0)
        while block := await to_thread.run_sync(file.read, CHECKED_BLOCK_BYTES):
            yield block


MAX_NAME_CHARS = 200
BLOCK_BYTES = 1 << 20
RESERVED_BLOCK_BYTES = 16 << 20
"""What is reserved at a time for an upload that doesn't announce its size."""


@dataclass(frozen=True, slots=True)
class Upload:
    """One uploaded file.

    Attributes:
        id: Random, 128 bits.
        owner: Id of its owner.
        network: Id of the network that it came from.
        name: File name from its owner; never part of a path.
        length: Size in bytes; ``None`` until the upload is complete if the client didn't announce it.
        expires: Time when the upload is deleted, in seconds since the epoch.
        description: What a tus client says about the upload (``Upload-Metadata``), which it gets back.
    """

    id: str
    owner: str
    network: str
    name: str
    length: int | None
    expires: float
    description: str = ""

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

    def create(self, requester: Requester, name: str, length: int | None, description: str = "") -> Upload:
        """Create an empty upload for a file, and reserve its place.

        Raises:
            TooLargeError: The file is larger than allowed, or the requester's quota is used up.
            DiskFullError: The disk has no space for the file.
        """
        self._check_size(clean_name(name), length or 0)
        self._check_room(length or 0)
        expires = time.time() + self._settings.keep_upload_s
        upload = Upload(
            secrets.token_hex(16), requester.owner, requester.network, clean_name(name), length, expires, description
        )
        with self._database.transaction() as connection:
            connection.execute(insert(UPLOADS).values(**asdict(upload), reserved=length or 0))
            quotas.check_bytes(connection, self._settings, requester)
            quotas.check_upload_count(connection, self._settings, requester)
        try:
            with _translate_disk_errors():
                self._get_path(upload).touch()
        except BaseException:
            self.remove(upload)
            raise
        if length == 0:
            self._complete(upload)
        return upload

    def get(self, owner: str, upload_id: str) -> Upload:
        """Return one of the owner's uploads that doesn't belong to a job yet.

        Raises:
            NotFoundError: The owner has no such upload.
        """
        rows = self._database.read(select(UPLOADS).where(UPLOADS.c.id == upload_id, *_is_free(owner)))
        if not rows:
            raise NotFoundError(front_ends.UPLOAD_MISSING())
        return _from_row(rows[0])

    def get_offset(self, upload: Upload) -> int:
        """Return the number of bytes received."""
        try:
            return self._get_path(upload).stat().st_size
        except FileNotFoundError:
            if upload.length is not None and self._files.has(upload.key):
                return upload.length
            raise NotFoundError(front_ends.UPLOAD_MISSING()) from None

    async def append(
        self,
        upload: Upload,
        offset: int | None,
        chunks: AsyncIterator[bytes],
        *,
        size: int | None = None,
        checksum: Checksum | None = None,
    ) -> int:
        """Append data to the received part; data received before a broken connection is stored.

        Args:
            upload: The upload.
            offset: Position of the data in the file; ``None`` for a whole file whose size isn't announced.
            chunks: The data.
            size: Size of the data, if it is announced.
            checksum: What the data must come to; then it is stored whole or not at all.

        Returns:
            The number of bytes received in total.

        Raises:
            ConflictError: ``offset`` isn't the number of bytes received so far.
            LockedError: Another request writes to the upload.
            TooLargeError: The data exceeds the announced or the allowed size, or the owner's quota.
            ChecksumError: The data was damaged on its way.
            DiskFullError: The disk is full, or would have less free space than ``min_free_bytes``.
        """
        blocks = self._limit_blocks(upload, offset or 0, chunks)
        if checksum is not None:
            blocks = verify_blocks(blocks, checksum, self._spool, self._check_room)
        try:
            file = self._get_path(upload).open("r+b")
        except FileNotFoundError:
            at = self._check_offset(await to_thread.run_sync(self.get_offset, upload), offset)
            async for _ in blocks:
                pass
            return at
        with file:
            _lock_file(file)
            at = reserved = self._check_offset(file.seek(0, os.SEEK_END), offset or 0)
            self._check_end(upload, at + (size or 0))
            async for block in blocks:
                if upload.length is None and at + len(block) > reserved:
                    reserved = at + max(len(block), RESERVED_BLOCK_BYTES * bool(at))
                    await to_thread.run_sync(self._reserve, upload, reserved)
                self._check_room(len(block))
                await to_thread.run_sync(_write_block, file, block)
                at += len(block)
            if offset is None:
                await to_thread.run_sync(self._save_length, upload, at)
            if offset is None or at == upload.length:
                await to_thread.run_sync(self._complete, upload)
        return at

    async def _limit_blocks(self, upload: Upload, at: int, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Join the chunks into blocks that end within the upload."""
        async for block in _join_blocks(chunks):
            at += len(block)
            self._check_end(upload, at)
            yield block

    def copy(self, requester: Requester, path: Path) -> Upload:
        """Copy a local file as a complete upload."""
        upload = self.create(requester, path.name, path.stat().st_size)
        with _translate_disk_errors():
            shutil.copyfile(path, self._get_path(upload))
        self._complete(upload)
        return upload

    def remove(self, upload: Upload) -> None:
        """Delete the upload with all its data."""
        self._get_path(upload).unlink(missing_ok=True)
        self._files.remove(upload.key)
        self._database.write(delete(UPLOADS).where(UPLOADS.c.id == upload.id))

    def find_complete(self, owner: str, upload_ids: Sequence[str]) -> list[Upload]:
        """Return the owner's uploads, which must be complete.

        Raises:
            NotFoundError: The owner has no such upload.
            ConflictError: An upload is incomplete.
        """
        wanted = list(dict.fromkeys(upload_ids))
        rows = self._database.read(select(UPLOADS).where(UPLOADS.c.id.in_(wanted), *_is_free(owner)))
        if len(rows) < len(wanted):
            raise NotFoundError(front_ends.UPLOAD_MISSING())
        found = {row["id"]: _from_row(row) for row in rows}
        uploads = [found[upload_id] for upload_id in wanted]
        for upload in uploads:
            if not self._ensure_complete(upload):
                raise ConflictError(front_ends.UPLOAD_INCOMPLETE(name=upload.name))
        return uploads

    def take(self, connection: Connection, uploads: Sequence[Upload], job: str, until: float) -> None:
        """Assign complete uploads to a job; they are deleted with it.

        Raises:
            ConflictError: An upload belongs to a job already.
        """
        is_free = UPLOADS.c.id.in_([upload.id for upload in uploads]) & UPLOADS.c.job.is_(None)
        taken = connection.execute(update(UPLOADS).where(is_free).values(job=job, expires=until))
        if taken.rowcount < len(uploads):
            raise ConflictError(front_ends.UPLOAD_TAKEN())

    def move(self, connection: Connection, upload_ids: Sequence[str], job: str) -> None:
        """Assign uploads of one job to another."""
        connection.execute(update(UPLOADS).where(UPLOADS.c.id.in_(upload_ids)).values(job=job))

    def list_for_job(self, job: str) -> list[Upload]:
        """Return the uploads of a job."""
        query = select(UPLOADS).where(UPLOADS.c.job == job).order_by(UPLOADS.c.name, UPLOADS.c.id)
        return [_from_row(row) for row in self._database.read(query)]

    def delete_expired(self) -> None:
        """Delete expired uploads, and files that no upload refers to."""
        for row in self._database.read(select(UPLOADS).where(UPLOADS.c.expires <= time.time())):
            self.remove(_from_row(row))
        on_disk = {name: self._spool / name for name in os.listdir(self._spool)}
        kept = self._files.list_names("uploads")
        known = {row["id"] for row in self._database.read(select(UPLOADS.c.id))}
        for name in on_disk.keys() - known:
            on_disk[name].unlink(missing_ok=True)
        for name in {name.split(".")[0] for name in kept} - known:
            self._files.remove(f"uploads/{name}")

    def _ensure_complete(self, upload: Upload) -> bool:
        """Return whether the upload is complete; finish it if a process died before moving the complete file."""
        if not self._files.has(upload.key) and self.get_offset(upload) == upload.length:
            self._complete(upload)
        return self._files.has(upload.key)

    def _reserve(self, upload: Upload, size: int) -> None:
        """Reserve as much for an upload that didn't announce its size."""
        with self._database.transaction() as connection:
            connection.execute(update(UPLOADS).where(UPLOADS.c.id == upload.id).values(reserved=size))
            quotas.check_bytes(connection, self._settings, Requester(upload.owner, upload.network))

    def _save_length(self, upload: Upload, length: int) -> None:
        self._database.write(update(UPLOADS).where(UPLOADS.c.id == upload.id).values(length=length, reserved=length))

    def _complete(self, upload: Upload) -> None:
        with _translate_disk_errors(), suppress(FileNotFoundError):  # another process has already moved it
            self._files.keep(self._get_path(upload), upload.key)

    def _check_offset(self, at: int, offset: int | None) -> int:
        if at != offset:
            raise ConflictError(front_ends.UPLOAD_OFFSET_WRONG(received=at))
        return at

    def _check_size(self, name: str, size: int) -> None:
        if size > self._settings.max_upload_bytes:
            raise TooLargeError(front_ends.UPLOAD_TOO_LARGE(name=name, max_bytes=self._settings.max_upload_bytes))

    def _check_room(self, size: int) -> None:
        """Check the free space for each block: others upload at once, and not every client announces a size."""
        if size > shutil.disk_usage(self._spool).free - self._settings.min_free_bytes:
            raise DiskFullError(front_ends.DISK_WITHOUT_ROOM())

    def _check_end(self, upload: Upload, end: int) -> None:
        """Check the end of what arrives against the announced size, or the largest one."""
        if upload.length is None:
            self._check_size(upload.name, end)
        elif end > upload.length:
            raise TooLargeError(front_ends.UPLOAD_LONGER_THAN_ANNOUNCED(length=upload.length))

    def _get_path(self, upload: Upload) -> Path:
        return self._spool / upload.id


def _is_free(owner: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of the owner's uploads that don't belong to a job."""
    return UPLOADS.c.owner == owner, UPLOADS.c.job.is_(None), UPLOADS.c.expires > time.time()


def _from_row(row: RowMapping) -> Upload:
    return Upload(**{field.name: row[field.name] for field in fields(Upload)})


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
        raise LockedError(front_ends.UPLOAD_LOCKED()) from None


@contextmanager
def _translate_disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = DiskFullError.from_os_error(error)
        if full is not None:
            raise full from error
        raise
