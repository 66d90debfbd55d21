"""Errors of the server, each with its HTTP status."""

import errno
import logging
import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from h11 import ProtocolError
from starlette.requests import ClientDisconnect

from predictors import PredictorError
from tracekit.errors import TracekitError
from tracekit.messages import front_ends


def serialize_error(error: TracekitError | PredictorError) -> dict[str, Any]:
    """Return an error for JSON: ``message``, ``hint``, ``code``, and ``catalogue``, its message if that is in there."""
    told = error.catalogue_message if isinstance(error, TracekitError) else None
    shown = {"message": error.message, "hint": error.hint, "code": error.code}
    return shown | {"catalogue": told.to_dict() if told else None}


class WebError(TracekitError):
    """A request that the server refuses."""

    status = 400
    headers: Mapping[str, str] = MappingProxyType({})
    """Headers of the response."""


class UnauthorizedError(WebError):
    """A missing or wrong token."""

    status = 401


class ForbiddenError(WebError):
    """A request from another site or for another host name."""

    status = 403


class NotFoundError(WebError):
    """A request for something that doesn't exist or belongs to another owner."""

    status = 404


class ConflictError(WebError):
    """A request that the current state doesn't allow."""

    status = 409


class TooLargeError(WebError):
    """A size or count above its limit."""

    status = 413


class BugError(WebError):
    """A request that met a bug."""

    status = 500


class LockedError(WebError):
    """An upload that another request is writing to."""

    status = 423


class TooManyError(WebError):
    """Too many requests or waiting jobs."""

    status = 429
    headers = MappingProxyType({"Retry-After": "60"})


class UnreachableError(WebError):
    """A file store that doesn't respond."""

    status = 503
    headers = MappingProxyType({"Retry-After": "10"})


class BusyError(UnreachableError):
    """A database that is locked or doesn't respond, or a server without free descriptors."""

    headers = MappingProxyType({"Retry-After": "5"})


class DiskFullError(WebError):
    """A full disk."""

    status = 507

    @classmethod
    def from_os_error(cls, error: OSError) -> Self | None:
        """Return the error for an ``OSError`` that means a full disk; ``None`` for others."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
        return cls(front_ends.DISK_FULL())


NOT_NOW = (BusyError, DiskFullError)
"""What a change of the database ends in that can be made later."""

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
