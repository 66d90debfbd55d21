"""How much memory the tables may take."""

import os
import re

from tracekit.errors import TracekitError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def to_bytes(memory: str | int | None) -> int:
    """A size such as ``"2G"`` (units are powers of 1024) in bytes; by default half of the machine's memory.

    Raises:
        TracekitError: It is no size.
    """
    if memory is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    found = _SIZE.fullmatch(str(memory))
    size = int(float(found.group(1)) * 2 ** _POWERS[found.group(2).lower()]) if found else 0
    if size <= 0:
        raise TracekitError(f"{str(memory)!r:.40} is no size of memory.", "Such as 512M or 2G.")
    return size
