"""Data that arrives with a checksum (tus): kept aside until it is verified."""

import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from tracekit.messages import front_ends
from tracekit.web.errors import WebError

ALGORITHMS = ("sha1", "sha256")
BLOCK_BYTES = 1 << 20


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
        while block := await to_thread.run_sync(file.read, BLOCK_BYTES):
            yield block
