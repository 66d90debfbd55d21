"""Parse the memory limit of the tables."""

import re

from tracekit.errors import TracekitError
from tracekit.messages.traces import MEMORY_SIZE_INVALID
from tracekit.numbers import NUMBER_PATTERN
from tracekit.system import find_memory_bytes

_SIZE_PATTERN = re.compile(rf"\s*({NUMBER_PATTERN})\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE | re.ASCII)
_UNIT_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_memory_size(memory: str | int | None) -> int:
    """Convert a size such as ``"2G"`` (units are powers of 1024) to bytes; by default half of the memory.

    Raises:
        TracekitError: It is not a size.
    """
    if memory is None:
        return find_memory_bytes() // 2
    found = _SIZE_PATTERN.fullmatch(str(memory))
    size = int(float(found.group(1)) * 2 ** _UNIT_POWERS[found.group(2).lower()]) if found else 0
    if size <= 0:
        raise TracekitError(MEMORY_SIZE_INVALID(size=str(memory)))
    return size
