"""Times as people write them."""

import re

from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.numbers import NUMBER_PATTERN

TIME = re.compile(rf"({NUMBER_PATTERN}) ?(us|µs|ms|s)")
UNITS_US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}


def parse_time_us(text: str) -> float:
    """Parse a time such as ``12.3ms``, in us.

    Raises:
        RequestError: The text is no time with a unit, or the time is zero.
    """
    found = TIME.fullmatch(text.strip())
    if found is None or not (time_us := float(found[1]) * UNITS_US[found[2]]):
        raise RequestError(messages.TIME_WITHOUT_UNIT(time=text))
    return time_us
