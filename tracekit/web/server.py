"""Runs the application."""

import logging
import sys

import uvicorn

from tracekit.web.app import create_app
from tracekit.web.settings import Settings

# Long enough for an upload's last block; what a connection that is cut leaves is kept anyway.
SHUTDOWN_S = 5


def run(settings: Settings) -> None:
    """Serve until interrupted. Requests are logged to stderr without what would give access."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    logging.getLogger("tracekit.web").setLevel(logging.INFO)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
