"""Traces behind a URI, through fsspec; nothing is asked of the network but the URIs that were given."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tracekit.errors import TraceNotFoundError
from tracekit.ingest.stream import File, unreadable

_PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp",
    "https": "aiohttp", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs", "hf": "huggingface_hub",
    "sftp": "paramiko", "ssh": "paramiko", "hdfs": "pyarrow",
}  # fmt: skip
HEAD_BYTES = 1 << 16
_WEB = ("http://", "https://")


def is_uri(text: str) -> bool:
    """Whether this names a file by protocol rather than by path."""
    return "://" in text


@dataclass(frozen=True, slots=True)
class Found:
    """A file behind a URI.

    Attributes:
        name: What to call it in messages.
        system: The fsspec file system that holds it.
        path: Its path there.
        is_listed: Whether it was found in a directory or by a glob.
    """

    name: str
    system: Any = field(repr=False)
    path: str
    is_listed: bool

    def open(self) -> File:
        """Open it to read all of it."""
        return self._open(None)

    def peek(self) -> File:
        """Open it to read only its beginning."""
        return self._open(HEAD_BYTES)

    def _open(self, block_bytes: int | None) -> File:
        # 0 reads a web page as it comes: many servers give no parts of a file.
        block_bytes = 0 if self.path.startswith(_WEB) else block_bytes
        file: File = self.system.open(self.path, "rb", block_size=block_bytes)
        return file


def find(uri: str, looks_like_trace: Callable[[str], bool]) -> list[Found]:
    """The files that a URI names.

    Args:
        uri: A file, a directory (two levels of it are listed) or a glob.
        looks_like_trace: Whether a name is one of a trace.

    Raises:
        TraceNotFoundError: A package is missing, the protocol is unknown, or there is nothing.
    """
    protocol = uri.split("://", 1)[0]
    try:
        system, path = _filesystem(uri)
        paths = _list(system, path, looks_like_trace)
    except ImportError as error:
        package = _PACKAGES.get(protocol)
        hint = f"pip install {package}" if package else str(error)
        raise TraceNotFoundError(f"{shown(uri)}: reading {protocol}:// needs another package.", hint) from error
    except Exception as error:
        raise unreadable(shown(uri), error) from error
    found = [path] if paths is None else paths
    return [Found(shown(system.unstrip_protocol(p)), system, p, paths is not None) for p in found]


def shown(uri: str) -> str:
    """The URI without what may be secret in it: user, password, signature."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rsplit('@', 1)[-1]}{parts.path}"


def _filesystem(uri: str) -> tuple[Any, str]:
    import fsspec

    system, path = fsspec.core.url_to_fs(uri)
    return system, str(path)


def _list(system: Any, path: str, looks_like_trace: Callable[[str], bool]) -> list[str] | None:
    """The files of a directory or glob; ``None`` for a file."""
    if "*" in path:
        return sorted(str(p) for p in system.glob(path))
    on_web = path.startswith(_WEB)
    if looks_like_trace(urlsplit(path).path if on_web else path):
        return None
    # To ask a web server whether something is a directory is to download it.
    is_listing = path.endswith("/") if on_web else system.isdir(path)
    return sorted(str(p) for p in system.find(path, maxdepth=2)) if is_listing else None
