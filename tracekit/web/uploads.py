"""Uploads: what has arrived lies in a file of its own, whose size is the only truth about how much that is."""

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

from tracekit.units import byte_count
from tracekit.web.database import Database, Row
from tracekit.web.errors import ConflictError, FullError, LockedError, NotFoundError, TooLargeError
from tracekit.web.files import Files
from tracekit.web.settings import Settings

LONGEST_NAME = 200
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """One file that somebody sends.

    Attributes:
        id: Random, 128 bits.
        name: What its owner calls it; never part of a path.
        length: Its size; ``None`` until the end, where the client didn't say.
        expires: When it is deleted, seconds since the epoch.
    """

    id: str
    name: str
    length: int | None
    expires: float

    @property
    def key(self) -> str:
        """Where it is once it is complete."""
        return f"uploads/{self.id}"


def printable(name: str) -> str:
    """A name that is harmless to show: the end of it, without control characters."""
    kept = "".join(char for char in name.replace("\\", "/") if char.isprintable())
    return kept.strip("/ ")[-LONGEST_NAME:] or "unnamed"


class Uploads:
    """All uploads of a store."""

    def __init__(self, settings: Settings, database: Database, files: Files) -> None:
        self._settings, self._database, self._files = settings, database, files
        self._spool = settings.data / "arriving"
        self._spool.mkdir(parents=True, exist_ok=True)

    def create(self, owner: str, name: str, length: int | None) -> Upload:
        """Make room for a file.

        Raises:
            TooLargeError: It is larger than allowed.
            FullError: The disk has no room for it.
        """
        self._check_size(printable(name), length or 0)
        self._check_room(length or 0)
        upload = Upload(secrets.token_hex(16), printable(name), length, time.time() + self._settings.keep_upload_s)
        self._database.run(
            "INSERT INTO uploads (id, owner, name, length, expires) VALUES (?, ?, ?, ?, ?)",
            upload.id, owner, upload.name, length, upload.expires,
        )  # fmt: skip
        with _disk():
            self._path(upload).touch()
        if length == 0:
            self._complete(upload)
        return upload

    def get(self, owner: str, upload_id: str) -> Upload:
        """One of the owner's uploads that no job has yet.

        Raises:
            NotFoundError: The owner has no such upload.
        """
        rows = self._database.run(
            "SELECT * FROM uploads WHERE id = ? AND owner = ? AND job IS NULL AND expires > ?",
            upload_id, owner, time.time(),
        )  # fmt: skip
        if not rows:
            raise NotFoundError("There is no such upload.", "It may have expired; upload the file again.")
        return _of_row(rows[0])

    def offset(self, upload: Upload) -> int:
        """How many bytes of it have arrived."""
        try:
            return self._path(upload).stat().st_size
        except FileNotFoundError:
            if upload.length is not None and self._files.has(upload.key):
                return upload.length
            raise NotFoundError("There is no such upload.", "Upload the file again.") from None

    async def append(self, upload: Upload, offset: int | None, chunks: AsyncIterator[bytes]) -> int:
        """Write what arrives behind what has arrived already; what a broken connection leaves is kept.

        Args:
            upload: Where to.
            offset: Where the data belongs; ``None`` if it is all of the file, of a size that shows at its end.
            chunks: The data.

        Returns:
            How many bytes of it have arrived now.

        Raises:
            ConflictError: The data belongs elsewhere.
            LockedError: Another request writes to it.
            TooLargeError: More arrives than was announced or is allowed.
            FullError: The disk is full, or would have less room left than it should.
        """
        try:
            file = self._path(upload).open("r+b")
        except FileNotFoundError:
            return self._expect(await to_thread.run_sync(self.offset, upload), offset)
        with file:
            _lock(file)
            at = self._expect(file.seek(0, os.SEEK_END), offset or 0)
            limit = self._settings.max_upload_bytes if upload.length is None else upload.length
            async for block in _blocks(chunks):
                if at + len(block) > limit:
                    raise self._over(upload)
                self._check_room(len(block))
                await to_thread.run_sync(_write, file, block)
                at += len(block)
            if offset is None:
                await to_thread.run_sync(self._note_length, upload, at)
            if offset is None or at == upload.length:
                await to_thread.run_sync(self._complete, upload)
        return at

    def copy(self, owner: str, path: Path) -> Upload:
        """A copy of a file of this machine, complete at once."""
        upload = self.create(owner, path.name, path.stat().st_size)
        with _disk():
            shutil.copyfile(path, self._path(upload))
        self._complete(upload)
        return upload

    def remove(self, upload: Upload) -> None:
        """Delete it, wholly."""
        self._path(upload).unlink(missing_ok=True)
        self._files.remove(upload.key)
        self._database.run("DELETE FROM uploads WHERE id = ?", upload.id)

    def take(self, owner: str, upload_ids: list[str], job: str, until: float) -> list[Upload]:
        """Give complete uploads to a job, which is deleted with them.

        Raises:
            NotFoundError: The owner has no such upload.
            ConflictError: One is incomplete, or belongs to a job already.
        """
        uploads = [self.get(owner, upload_id) for upload_id in dict.fromkeys(upload_ids)]
        for upload in uploads:
            if not self._is_whole(upload):
                raise ConflictError(f"{upload.name} has not arrived wholly.", "Resume its upload first.")
        marks = ", ".join("?" * len(uploads))
        taken = self._database.run(
            f"UPDATE uploads SET job = ?, expires = ? WHERE id IN ({marks}) AND job IS NULL RETURNING id",
            job, until, *(upload.id for upload in uploads),
        )  # fmt: skip
        if len(taken) < len(uploads):
            self.release(job)
            raise ConflictError("An upload belongs to another job already.", "Upload the file again.")
        return uploads

    def release(self, job: str) -> None:
        """Take them back from a job that was not begun after all."""
        until = time.time() + self._settings.keep_upload_s
        self._database.run("UPDATE uploads SET job = NULL, expires = ? WHERE job = ?", until, job)

    def of_job(self, job: str) -> list[Upload]:
        """What a job reads."""
        rows = self._database.run("SELECT * FROM uploads WHERE job = ? ORDER BY name, id", job)
        return [_of_row(row) for row in rows]

    def sweep(self) -> None:
        """Delete what has expired, and files that nothing refers to any more."""
        for row in self._database.run("SELECT * FROM uploads WHERE expires <= ?", time.time()):
            self.remove(_of_row(row))
        on_disk = {name: self._spool / name for name in os.listdir(self._spool)}
        kept = self._files.below("uploads")
        known = {row["id"] for row in self._database.run("SELECT id FROM uploads")}
        for name in on_disk.keys() - known:
            on_disk[name].unlink(missing_ok=True)
        for name in {name.split(".")[0] for name in kept} - known:
            self._files.remove(f"uploads/{name}")

    def _is_whole(self, upload: Upload) -> bool:
        """Whether all of it is there; a process may have died between the last byte and the move."""
        if not self._files.has(upload.key) and self.offset(upload) == upload.length:
            self._complete(upload)
        return self._files.has(upload.key)

    def _note_length(self, upload: Upload, length: int) -> None:
        self._database.run("UPDATE uploads SET length = ? WHERE id = ?", length, upload.id)

    def _complete(self, upload: Upload) -> None:
        with _disk(), suppress(FileNotFoundError):  # another process was faster
            self._files.keep(self._path(upload), upload.key)

    def _expect(self, at: int, offset: int | None) -> int:
        if at != offset:
            raise ConflictError(f"{at} bytes have arrived.", "Ask for the offset (HEAD) and go on from there.")
        return at

    def _check_size(self, name: str, size: int) -> None:
        if size > self._settings.max_upload_bytes:
            raise TooLargeError(
                f"{name} is larger than this server takes: {byte_count(self._settings.max_upload_bytes)}.",
                "Compress it, or record fewer steps; whoever runs the server sets the limit (--max-upload).",
            )

    def _check_room(self, size: int) -> None:
        """Others may upload at the same time, and not every client says how much comes: so for each block anew."""
        if size > shutil.disk_usage(self._spool).free - self._settings.min_free_bytes:
            raise FullError("The server's disk has no room for this file.", "Try later, or tell whoever runs it.")

    def _over(self, upload: Upload) -> TooLargeError:
        if upload.length is not None:
            return TooLargeError(f"More arrives than the {upload.length} bytes that were announced.")
        self._check_size(upload.name, self._settings.max_upload_bytes + 1)
        raise AssertionError

    def _path(self, upload: Upload) -> Path:
        return self._spool / upload.id


def _of_row(row: Row) -> Upload:
    return Upload(row["id"], row["name"], row["length"], row["expires"])


async def _blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same data in larger pieces; what arrived before the connection broke is still given."""
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


def _write(file: BinaryIO, block: bytes) -> None:
    with _disk():
        _pour(file, block)


def _pour(file: BinaryIO, block: bytes) -> None:
    file.write(block)
    file.flush()


def _lock(file: BinaryIO) -> None:
    """Released by the system when the file is closed, or the process dies."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError("Another request writes to this upload.", "Wait until it ends, then resume.") from None


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = FullError.of(error)
        if full is not None:
            raise full from error
        raise
