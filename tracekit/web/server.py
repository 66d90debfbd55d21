"""Run the application."""

import errno
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from tracekit.errors import OutputError, TracekitError
from tracekit.messages import web_errors
from tracekit.web.app import create_app
from tracekit.web.settings import Settings

# Long enough for an upload's last block; data received before a connection is cut is stored anyway.
SHUTDOWN_S = 5


def run_server(settings: Settings, listening: Callable[[], object] = lambda: None) -> None:
    """Serve until interrupted; log requests to stderr without secrets.

    Args:
        settings: The server's settings.
        listening: Called once the sockets are open.

    Raises:
        OutputError: The port is in use, or this machine doesn't have the address.
        TracekitError: The server didn't start.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    logging.getLogger("tracekit.web").setLevel(logging.INFO)
    sockets = _open_sockets(settings.host, settings.port)
    config = uvicorn.Config(
        create_app(settings),
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    server = uvicorn.Server(config)
    listening()
    with suppress(KeyboardInterrupt):
        server.run(sockets)
    if not server.started:
        raise TracekitError(web_errors.SERVER_NOT_STARTED())


def _open_sockets(host: str, port: int) -> list[socket.socket]:
    """Open a listening socket on each address of a host; skip addresses that this machine doesn't have."""
    found: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, _, _, _, address in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
            try:
                found.append(socket.create_server(address[:2], family=family))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise
                missing = error
        if missing and not found:
            raise missing
    except OSError as error:
        for one in found:
            one.close()
        why = str(error.strerror).partition(" (")[0]
        raise OutputError(web_errors.ADDRESS_UNUSABLE(host=host, port=port, reason=why)) from error
    return found
