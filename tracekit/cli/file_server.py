"""Serve one file over HTTP on the loopback interface; a timeline inside Perfetto's page."""

import gzip
import json
import mimetypes
import sys
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tracekit.errors import OutputError, TraceError
from tracekit.messages import front_ends
from tracekit.render import viewer

CLIENT_WAIT_S = 60.0
LOOPBACK_ADDRESS = "127.0.0.1"
HEAD_BYTES = 16_384
TIMELINE_SUFFIXES = (".json", ".gz")
PERFETTO_POLICY = (
    "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
    "connect-src 'self' data: blob: http://127.0.0.1:9001 ws://127.0.0.1:9001"
)
"""Allow this machine only; Perfetto looks for a native trace processor on port 9001."""


def create_server(file: Path, port: int) -> ThreadingHTTPServer:
    """Create a server of one file that listens on 127.0.0.1 only and refuses other host names.

    Args:
        file: A report or a timeline.
        port: Port to listen on; 0 for any free port.

    Raises:
        TraceError: The file doesn't exist, or is neither a report nor a timeline.
        OutputError: The port is taken, or Perfetto's page isn't installed.
    """
    if not file.is_file():
        raise TraceError(front_ends.FILE_TO_VIEW_MISSING(path=str(file)))
    if file.suffix != ".html" and file.suffix not in TIMELINE_SUFFIXES:
        raise TraceError(front_ends.FILE_TO_VIEW_UNKNOWN(path=str(file)))
    page = None if file.suffix == ".html" else _find_perfetto_page()
    try:
        return _Server((LOOPBACK_ADDRESS, port), type("Handler", (_Handler,), {"file": file, "page": page}))
    except OSError as error:
        raise OutputError(front_ends.PORT_UNUSABLE(port=port, reason=error.strerror)) from error


def _find_perfetto_page() -> Path:
    """Find the folder of Perfetto's page."""
    page = viewer.folder()
    if page is None:
        raise OutputError(front_ends.VIEWER_MISSING(extra=viewer.VIEWER_EXTRA))
    return page


def _is_own_timeline(file: Path) -> bool:
    """Return whether tracekit wrote a timeline, by its first bytes."""
    opened = gzip.open if file.suffix == ".gz" else open
    with suppress(OSError, EOFError), opened(file, "rb") as content:
        return b'"tracekit":' in content.read(HEAD_BYTES)
    return False


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing about a viewer that hangs up."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # typeshed knows sockets only


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_WAIT_S
    file: Path
    page: Path | None

    def do_GET(self) -> None:
        """Send the report, or a file of Perfetto's page."""
        path = self.path.partition("?")[0]
        if self.headers.get("Host") != f"{LOOPBACK_ADDRESS}:{self.connection.getsockname()[1]}":
            self._send(b"", "text/plain", 421)
        elif self.page is not None:
            self._send_timeline(self.page, path)
        elif path == "/":
            self._send(self.file.read_bytes(), "text/html; charset=utf-8")
        else:
            self._send(b"", "text/plain", 404)

    def _send_timeline(self, page: Path, path: str) -> None:
        if path == "/" and _is_own_timeline(self.file):
            self.send_response(303)
            self.send_header("Location", f"/index.html#!/?{viewer.build_startup_commands()}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path in _VIEWER_RESPONSES:
            self._send(json.dumps(_VIEWER_RESPONSES[path]).encode(), "application/json")
        elif path == "/localtrace":
            self._send(self.file.read_bytes(), "application/octet-stream")
        else:
            asset = viewer.find_asset(page, path)
            kind = mimetypes.guess_type(path if path != "/" else "index.html")[0] or "application/octet-stream"
            self._send(asset.read_bytes() if asset else b"", kind, 200 if asset else 404)

    def _send(self, content: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        if self.page is not None:
            self.send_header("Content-Security-Policy", PERFETTO_POLICY)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


_VIEWER_RESPONSES: Mapping[str, object] = {"/vizviewer_info": {}, "/file_info": {}}
