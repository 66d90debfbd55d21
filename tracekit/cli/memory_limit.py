"""Refuse to start under a limit on memory that the libraries don't survive."""

import os

from tracekit.bounds import MIN_ADDRESS_SPACE_BYTES, MIN_THREAD_SPACE_BYTES
from tracekit.errors import TracekitError
from tracekit.messages.front_ends import MEMORY_LIMIT_LOW
from tracekit.system import get_address_space_bytes


def check_memory_limit() -> None:
    """Refuse a limit below which numpy and polars abort the process.

    Raises:
        TracekitError: There is such a limit.
    """
    least = MIN_ADDRESS_SPACE_BYTES + MIN_THREAD_SPACE_BYTES * max((os.cpu_count() or 1) - 2, 0)
    limit = get_address_space_bytes()
    if limit is not None and limit < least:
        raise TracekitError(MEMORY_LIMIT_LOW(limit_bytes=limit, least_bytes=least))
