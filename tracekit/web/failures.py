"""What requests meet that isn't answered by a route: clients that leave, a system at its limits, bugs."""

import errno
import logging
import traceback

from h11 import ProtocolError
from starlette.requests import ClientDisconnect

from tracekit.messages import front_ends
from tracekit.web.errors import BugError, BusyError, DiskFullError, UnreachableError, WebError

log = logging.getLogger("tracekit.web")

CLIENT_FAILURES = (ClientDisconnect, ConnectionError, ProtocolError)
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def explain_failure(error: Exception) -> WebError | None:
    """Return how to refuse a request that failed, or ``None`` if its client has left.

    Only a bug is logged with its traceback, without its message, which may contain the user's data.
    """
    if isinstance(error, WebError):
        return error
    if isinstance(error, CLIENT_FAILURES):
        log.info("a client left or broke the protocol: %s", type(error).__name__)
        return None
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        log.error("a request failed: %s", reason)
        if error.errno in OUT_OF_DESCRIPTORS:
            return BusyError(front_ends.SERVER_BUSY())
        return DiskFullError.from_os_error(error) or UnreachableError(front_ends.FILES_UNUSABLE(reason=reason))
    log.error("%s%s", "".join(traceback.format_tb(error.__traceback__)), type(error).__name__)
    return BugError(front_ends.SERVER_BUG())
