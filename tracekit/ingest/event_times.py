"""Convert times from JSON, in microseconds, to whole nanoseconds without rounding errors of floats."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec
import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.ingest.fields import NULL

MAX_TIME_US = 2**53
"""Times of this size or more are taken for missing."""

_FEW_TIMES = 64
"""Up to so many times are converted one by one."""

_FRACTION_DIGITS = 9
_FRACTION_OF_NS = 10 ** (_FRACTION_DIGITS - 3)
_PLAIN_TIME = rf"^(?:0|[1-9][0-9]{{0,15}})(?:\.[0-9]{{1,{_FRACTION_DIGITS}}})?$"
_DECIMAL_DECODER = msgspec.json.Decoder(Decimal | None)


def convert_to_ns(times: Sequence[bytes]) -> Ints:
    """Convert times to whole nanoseconds, half ones to even ones; ``NULL`` without a time, or if it does not fit.

    Args:
        times: JSON numbers, or strings that hold one; empty where there is none.

    Raises:
        msgspec.DecodeError: One is something else.
    """
    if len(times) <= _FEW_TIMES:
        return np.array([_convert_one(time) for time in times], np.int64)
    texts = pl.Series([time.decode("latin-1") for time in times])
    is_absent = texts.is_in(["", "null"])
    is_plain = is_absent | texts.str.contains(_PLAIN_TIME)
    plain = pl.select(texts.set(is_absent | ~is_plain, "0").alias("time").str.splitn(".", 2)).unnest("time")
    whole = plain["field_0"].cast(pl.Int64).to_numpy()
    fraction = plain["field_1"].fill_null("0").str.pad_end(_FRACTION_DIGITS, "0").cast(pl.Int64).to_numpy()
    ns, rest = np.divmod(fraction, _FRACTION_OF_NS)
    result = np.where(whole < MAX_TIME_US, whole, 0) * 1000 + ns
    result += (2 * rest > _FRACTION_OF_NS) | ((2 * rest == _FRACTION_OF_NS) & (result % 2 == 1))
    result[is_absent.to_numpy() | (whole >= MAX_TIME_US)] = NULL
    for row in np.flatnonzero(~is_plain.to_numpy()).tolist():
        result[row] = _convert_one(times[row])
    return result


def _convert_one(time: bytes) -> int:
    microseconds: Decimal | None = _DECIMAL_DECODER.decode(time) if time else None
    if microseconds is None or not microseconds.is_finite() or not -MAX_TIME_US < microseconds < MAX_TIME_US:
        return NULL
    return round(microseconds * 1000)
