"""Limit the names that later stages classify one by one."""

import polars as pl

from tracekit.bounds import MAX_DISTINCT_NAMES
from tracekit.errors import TraceTooLargeError
from tracekit.messages.traces import NAMES_TOO_MANY


def check_distinct_names(names: pl.Series, source: str) -> None:
    """Refuse more different names than any job's kernels have.

    Args:
        names: Name of each kernel, copy and memset.
        source: Name of the trace in messages.

    Raises:
        TraceTooLargeError: There are more.
    """
    distinct = names.n_unique()
    if distinct > MAX_DISTINCT_NAMES:
        raise TraceTooLargeError(NAMES_TOO_MANY(path=source, names=distinct, max_names=MAX_DISTINCT_NAMES))
