"""Files to bytes."""

from pathlib import Path

from isal import igzip
from isal.igzip_lib import IsalError

from tracekit.errors import DamagedTraceError, TraceNotFoundError

GZIP_MAGIC = b"\x1f\x8b"


def read(path: Path) -> bytes:
    """The file's content, decompressed if it is gzip (told by its first bytes, not by its name).

    Raises:
        TraceNotFoundError: No such file, or not a file.
        DamagedTraceError: Empty, or the compression is truncated or corrupt.
    """
    if path.is_dir():
        raise TraceNotFoundError(f"{path} is a directory.", "Name one rank's trace file in it.")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file.") from None
    except OSError as error:
        raise TraceNotFoundError(f"{path} can't be read: {error.strerror}.") from error
    if not data:
        raise DamagedTraceError(f"{path} is empty.", "Was the profiler stopped before the job ended?")
    return _gunzip(data, path) if data.startswith(GZIP_MAGIC) else data


def _gunzip(data: bytes, path: Path) -> bytes:
    try:
        plain: bytes = igzip.decompress(data)
    except (EOFError, OSError, IsalError) as error:  # type: ignore[misc]  # isal's stub declares an instance
        raise DamagedTraceError(
            f"{path}: the gzip data is truncated or corrupt ({error}).", "Copy or record the file again."
        ) from error
    return plain
