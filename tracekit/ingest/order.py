"""The order of a table's rows, the same whatever their order in the file."""

from collections.abc import Callable

import numpy as np
import polars as pl

from tracekit.arrays import Ints


def by_start(ts_ns: Ints, dur_ns: Ints, rows_at: Callable[[Ints], pl.DataFrame]) -> Ints:
    """Rows by start, enclosing ones first; every other column breaks ties.

    Args:
        ts_ns: Start of each row.
        dur_ns: Its duration.
        rows_at: Gives some rows with all their columns; asked for those that start and last alike.
    """
    order = np.lexsort((-dur_ns, ts_ns))
    same = (np.diff(ts_ns[order]) == 0) & (np.diff(dur_ns[order]) == 0)
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same)) if order.size else order
    if tied.size:
        rows = order[tied]
        frame = rows_at(rows).with_row_index("row")
        rest = [name for name in frame.columns if name not in ("row", "ts_ns", "dur_ns")]
        descending = [False, True, *(False for _ in rest)]
        order[tied] = rows[
            frame.sort("ts_ns", "dur_ns", *rest, descending=descending, nulls_last=True)["row"].to_numpy()
        ]
    return order
