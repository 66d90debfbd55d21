"""Read traces from URIs, through fsspec. Only the given URIs are accessed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tracekit.errors import TraceNotFoundError
from tracekit.ingest.stream import ReadableFile, make_read_error
from tracekit.messages import traces

_PROTOCOL_PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp",
    "https": "aiohttp", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs", "hf": "huggingface_hub",
    "sftp": "paramiko", "ssh": "paramiko", "hdfs": "pyarrow",
}  # fmt: skip
HEAD_BYTES = 1 << 16
_WEB_PREFIXES = ("http://", "https://")


def is_uri(text: str) -> bool:
    """Return whether the text names a file by protocol rather than by path."""
    return "://" in text


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file behind a URI.

    Attributes:
        name: Its name in messages.
        system: The fsspec file system that holds it.
        path: Its path there.
        is_listed: Whether it was found in a directory or by a glob.
    """

    name: str
    system: Any = field(repr=False)
    path: str
    is_listed: bool

    def open(self) -> ReadableFile:
        """Open the file to read all of it."""
        return self._open_in_blocks(None)

    def peek(self) -> ReadableFile:
        """Open the file to read only its beginning."""
        return self._open_in_blocks(HEAD_BYTES)

    def _open_in_blocks(self, block_bytes: int | None) -> ReadableFile:
        # 0 streams a web page: many servers do not support range requests.
        block_bytes = 0 if self.path.startswith(_WEB_PREFIXES) else block_bytes
        file: ReadableFile = self.system.open(self.path, "rb", block_size=block_bytes)
        return file


def find_files(uri: str, looks_like_trace: Callable[[str], bool]) -> list[RemoteFile]:
    """Find the files that a URI names.

    Args:
        uri: A file, a directory (listed two levels deep) or a glob.
        looks_like_trace: Returns whether a name is that of a trace.

    Raises:
        TraceNotFoundError: A package is missing, the protocol is unknown, or there is nothing.
    """
    protocol = uri.split("://", 1)[0]
    try:
        system, path = _open_filesystem(uri)
        paths = _list_files(system, path, looks_like_trace)
    except ImportError as error:
        package = _PROTOCOL_PACKAGES.get(protocol)
        shown = {"uri": redact_uri(uri), "protocol": protocol}
        if package:
            raise TraceNotFoundError(traces.PROTOCOL_NEEDS_PACKAGE(**shown, package=package)) from error
        raise TraceNotFoundError(traces.PROTOCOL_UNREADABLE(**shown, reason=str(error))) from error
    except Exception as error:
        raise make_read_error(redact_uri(uri), error) from error
    found = [path] if paths is None else paths
    return [RemoteFile(redact_uri(system.unstrip_protocol(p)), system, p, paths is not None) for p in found]


def redact_uri(uri: str) -> str:
    """Remove possible secrets from a URI: user, password, signature."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rsplit('@', 1)[-1]}{parts.path}"


def _open_filesystem(uri: str) -> tuple[Any, str]:
    import fsspec

    system, path = fsspec.core.url_to_fs(uri)
    return system, str(path)


def _list_files(system: Any, path: str, looks_like_trace: Callable[[str], bool]) -> list[str] | None:
    """List the files of a directory or glob; ``None`` for a file."""
    if "*" in path:
        return sorted(str(p) for p in system.glob(path))
    on_web = path.startswith(_WEB_PREFIXES)
    if looks_like_trace(urlsplit(path).path if on_web else path):
        return None
    # Asking a web server whether something is a directory would download it.
    is_listing = path.endswith("/") if on_web else system.isdir(path)
    return sorted(str(p) for p in system.find(path, maxdepth=2)) if is_listing else None
