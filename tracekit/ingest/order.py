"""The order of a table's rows, independent of their order in the file."""

from collections.abc import Callable

import numpy as np
import polars as pl

from tracekit.arrays import Ints


def argsort_by_start(ts_ns: Ints, dur_ns: Ints, rows_at: Callable[[Ints], pl.DataFrame]) -> Ints:
    """Return the order of rows by start, enclosing rows first; all other columns break ties.

    Args:
        ts_ns: Start of each row.
        dur_ns: Duration of each row.
        rows_at: Returns some rows with all their columns; called for rows with equal start and duration.
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
