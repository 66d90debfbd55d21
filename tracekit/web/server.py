"""Run the application."""

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import uvicorn

from tracekit.errors import OutputError, TracekitError
from tracekit.messages import front_ends
from tracekit.web.app import create_app
from tracekit.web.connections import BoundedProtocol, ConnectionTable, get_connection_limit, handle_loop_error
from tracekit.web.settings import Settings

# Long enough for an upload's last block; data received before a connection is cut is stored anyway.
SHUTDOWN_S = 5

ACCEPTED_SHARE = 8
"""Part of all connections that is accepted before others are ended for them; asyncio calls the number backlog."""
BACKLOG = 2048
"""Connections that wait in the system until they are accepted."""


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
    with ExitStack() as opened:
        sockets = [opened.enter_context(each) for each in _open_sockets(settings.host, settings.port)]
        server = PageServer(settings)
        listening()
        with suppress(KeyboardInterrupt):
            server.run(sockets)
    if not server.started:
        raise TracekitError(front_ends.SERVER_NOT_STARTED())


class PageServer(uvicorn.Server):
    """uvicorn's server of our application, with limits on connections; it logs lines in place of tracebacks.

    Args:
        settings: The server's settings.
        options: More of uvicorn's options.
    """

    def __init__(self, settings: Settings, **options: Any) -> None:
        limit = get_connection_limit()
        self._table = ConnectionTable(limit, settings.client_wait_s)
        config = uvicorn.Config(
            create_app(settings),
            http=partial(BoundedProtocol, table=self._table),  # type: ignore[arg-type]  # it is called as a class is
            ws="none",
            backlog=max(1, limit // ACCEPTED_SHARE),
            # Without a token there is no proxy whose word on a client's address could be taken.
            proxy_headers=settings.token is not None,
            access_log=False,
            log_config=None,
            log_level="error",
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
            **options,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        asyncio.get_running_loop().set_exception_handler(handle_loop_error)
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """End connections that stall; called ten times a second."""
        if counter % 10 == 0:
            self._table.end_stalled()
        return await super().on_tick(counter)


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
        raise OutputError(front_ends.ADDRESS_UNUSABLE(host=host, port=port, reason=why)) from error
    return found
