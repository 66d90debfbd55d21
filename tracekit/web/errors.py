"""What the server refuses, each with its HTTP status."""

import errno
from typing import Self

from tracekit.errors import TracekitError


class WebError(TracekitError):
    """Something was asked that the server doesn't do."""

    status = 400


class UnauthorizedError(WebError):
    """The token is missing or wrong."""

    status = 401


class ForbiddenError(WebError):
    """The request comes from another site, or names another host."""

    status = 403


class NotFoundError(WebError):
    """There is no such thing, or it belongs to somebody else."""

    status = 404


class ConflictError(WebError):
    """What is asked doesn't fit the current state."""

    status = 409


class TooLargeError(WebError):
    """A limit on sizes or numbers is exceeded."""

    status = 413


class LockedError(WebError):
    """Another request writes to the same upload."""

    status = 423


class TooManyError(WebError):
    """A limit on requests or waiting jobs is exceeded."""

    status = 429


class UnreachableError(WebError):
    """The place where files are kept doesn't answer."""

    status = 503


class FullError(WebError):
    """The disk is full."""

    status = 507

    @classmethod
    def of(cls, error: OSError) -> Self | None:
        """The error to show for a system's error, if that is what it means."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
        return cls("The server's disk is full.", "Try again later, or tell whoever runs it.")
