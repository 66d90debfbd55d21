"""Parse how a user writes embedding tables: ``26*1000000x128:20:1.05``.

These are 26 tables of a million rows, 128 values each. A sample looks up 20 rows of each, which are summed, and draws
them by Zipf's law with an exponent of 1.05.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from tracekit.bounds import MAX_POOLING, MAX_TABLE_ROWS, MAX_TABLE_WIDTH, MAX_TABLES, MAX_ZIPF_ALPHA
from tracekit.errors import RequestError
from tracekit.messages import models as messages
from tracekit.numbers import NUMBER_PATTERN

FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
DEFAULT_POOLING = 1.0
_SPEC = re.compile(
    r"(?:(?P<count>[0-9]{1,7})\s*\*\s*)?"
    rf"(?P<rows>{NUMBER_PATTERN})\s*(?P<factor>[kKmMgG]?)\s*[x×]\s*(?P<width>[0-9]{{1,7}})"
    rf"(?:\s*:\s*(?P<pooling>{NUMBER_PATTERN})(?:\s*:\s*(?P<alpha>{NUMBER_PATTERN}))?)?"
)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Embedding tables of one kind.

    Attributes:
        count: Tables of that kind.
        rows: Of each table.
        width: Values of a row.
        pooling: Mean look-ups of a sample, whose rows are summed.
        alpha: Exponent of Zipf's law by which rows are looked up; None for that of the request.
    """

    count: int
    rows: int
    width: int
    pooling: float = DEFAULT_POOLING
    alpha: float | None = None

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("count", self.count, 1, MAX_TABLES),
            ("rows", self.rows, 1, MAX_TABLE_ROWS),
            ("width", self.width, 1, MAX_TABLE_WIDTH),
            ("pooling", self.pooling, 0, MAX_POOLING),
            ("alpha", self.alpha or 0.0, 0, MAX_ZIPF_ALPHA),
        ):
            if not least <= value <= most:
                raise RequestError(messages.TABLE_BEYOND_BOUNDS(name=name, value=value, least=least, most=most))


def parse_table_spec(text: str) -> TableSpec:
    """Parse ``[COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]]``.

    Args:
        text: Such as ``40Mx128`` or ``26*1000000x128:20:1.05``; rows also in k, M or G.

    Raises:
        RequestError: It is no such text, or a number is impossible.
    """
    found = _SPEC.fullmatch(text.strip())
    rows = Decimal(found["rows"]) * FACTORS[found["factor"].lower()] if found else Decimal(0)
    if found is None or rows != int(rows):
        raise RequestError(messages.TABLE_MALFORMED(table=text))
    return TableSpec(
        count=int(found["count"] or 1),
        rows=int(rows),
        width=int(found["width"]),
        pooling=float(found["pooling"] or DEFAULT_POOLING),
        alpha=float(found["alpha"]) if found["alpha"] else None,
    )
