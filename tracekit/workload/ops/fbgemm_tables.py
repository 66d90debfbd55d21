"""Split FBGEMM's look-ups into their tables: as captured programs list them, of recorded ones evenly."""

from collections import Counter

from tracekit.models.lookups import IndexPattern
from tracekit.workload.ops.fbgemm_calls import LookedUp
from tracekit.workload.ops.table_lookups import TableLookup
from tracekit.workload.signature import Signature

LISTS = 3
"""Last inputs of a captured call: lists of each table's rows, width and indices."""


def list_tables(
    signature: Signature, looked_up: LookedUp, width: float, bags: int, pattern: IndexPattern | None
) -> list[TableLookup]:
    """List the tables of a call, equal ones as one.

    Args:
        signature: The call.
        looked_up: What it tells of all tables together.
        width: Mean width of a table.
        bags: Sums over all tables.
        pattern: How the indices are distributed; None if nobody knows.
    """
    each = [signature.get_integers(len(signature.dims) - LISTS + place) or [] for place in range(LISTS)]
    if {len(sizes) for sizes in each} != {looked_up.tables}:
        return [looked_up.split_evenly(width, bags, pattern)]
    return [
        TableLookup(
            rows=max(rows, 1),
            width=of_row,
            indices=indices,
            bags=bags / looked_up.tables,
            weight_bytes=looked_up.weight_bytes,
            pattern=pattern,
            tables=count,
        )
        for (rows, of_row, indices), count in Counter(zip(*each, strict=True)).items()
    ]
