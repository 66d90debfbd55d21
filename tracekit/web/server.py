"""Run the application."""

import asyncio
import errno
import logging
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from itertools import takewhile
from typing import Any

import h11
import uvicorn
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tracekit.bounds import MAX_CONNECTIONS, MIN_PROGRESS_BYTES
from tracekit.errors import OutputError, TracekitError
from tracekit.messages import front_ends
from tracekit.web.app import create_app
from tracekit.web.settings import Settings

log = logging.getLogger("tracekit.web")

WRITE_BUFFER_BYTES = 64 << 10

OWN_DESCRIPTORS = 64
"""Database, workers, log, listening sockets."""
DESCRIPTORS_PER_CONNECTION = 2
"""The connection and the file that it reads or writes."""
MIN_CONNECTIONS = 8

LOG_INTERVAL_S = 60.0


def get_connection_limit() -> int:
    """Return how many connections fit into the limit of this process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    fitting = (soft - OWN_DESCRIPTORS) // DESCRIPTORS_PER_CONNECTION if soft > 0 else MAX_CONNECTIONS
    return max(MIN_CONNECTIONS, min(fitting, MAX_CONNECTIONS))


class ConnectionTable:
    """All connections, those first that made progress longest ago.

    A new connection beyond the limit takes the place of the one that has kept the server waiting for longest: silent
    clients never keep others out.

    Args:
        limit: Most connections.
        wait_s: Longest time that a client may keep the server waiting without progress.
    """

    def __init__(self, limit: int, wait_s: float) -> None:
        self._limit, self._wait_s = limit, wait_s
        self._progress: dict[BoundedProtocol, float] = {}

    def add(self, connection: "BoundedProtocol") -> None:
        """Add a new connection; end another if there are too many, or the new one if the server works on all others."""
        if len(self._progress) >= self._limit:
            log_sparingly("as many connections as may be are open: those that wait for their client are ended")
            waiting = (other for other in self._progress if other.waits_for_client)
            next(waiting, connection).end()
        self._progress[connection] = time.monotonic()

    def note_progress(self, connection: "BoundedProtocol") -> None:
        """Note that a connection's client did what the server waited for."""
        if self._progress.pop(connection, None) is not None:
            self._progress[connection] = time.monotonic()

    def remove(self, connection: "BoundedProtocol") -> None:
        """Remove a closed connection."""
        self._progress.pop(connection, None)

    def end_stalled(self) -> None:
        """End the connections whose clients have kept the server waiting for too long."""
        last = time.monotonic() - self._wait_s
        for connection, _ in list(takewhile(lambda one: one[1] < last, self._progress.items())):
            if connection.waits_for_client:
                connection.end()
            else:
                self.note_progress(connection)


class BoundedProtocol(H11Protocol):
    """uvicorn's connection, which its client can't keep open without use."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        table: ConnectionTable,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._table = table
        self._unnoted_bytes = 0

    @property
    def waits_for_client(self) -> bool:
        """True if what comes next is the client's: a request, the rest of one, or taking the answer."""
        if self.cycle is None or self.cycle.response_complete or self.flow.write_paused:
            return True
        return self.cycle.more_body and not self.flow.read_paused and not self.cycle.waiting_for_100_continue

    def end(self) -> None:
        """End the connection at once, with what is still to be sent."""
        self._table.remove(self)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        """Begin a connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES, WRITE_BUFFER_BYTES - MIN_PROGRESS_BYTES)
        self._table.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._table.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived; a header counts as progress once it is whole."""
        cycle = self.cycle
        try:
            super().data_received(data)
        except h11.ProtocolError:  # a second error of the client's, while the first one is answered
            self.end()
            return
        self._unnoted_bytes += len(data) if cycle is not None and not cycle.response_complete else 0
        if self.cycle is not cycle or self._unnoted_bytes >= MIN_PROGRESS_BYTES:
            self._note_progress()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._note_progress()
        super().on_response_complete()

    def resume_writing(self) -> None:
        """Go on sending: the client has taken most of what was sent."""
        self._note_progress()
        super().resume_writing()

    def _note_progress(self) -> None:
        self._unnoted_bytes = 0
        self._table.note_progress(self)


_last_logged: dict[str, float] = {}


def log_sparingly(text: str) -> None:
    """Log a line at most once a minute: clients can cause any number of them."""
    now = time.monotonic()
    if now - _last_logged.get(text, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
        _last_logged[text] = now
        log.warning("%s", text)


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Log what goes wrong outside of a request: a line for what clients and limits cause, a traceback for bugs."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
        log_sparingly(f"connections can't be accepted: {error.strerror}")
    elif isinstance(error, OSError | h11.ProtocolError):
        log_sparingly(f"a connection broke: {type(error).__name__}")
    else:
        loop.default_exception_handler(dict(context))


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
