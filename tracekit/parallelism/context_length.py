"""Change how many keys each sequence of a decode batch sees."""

import polars as pl

from tracekit.messages import layouts
from tracekit.parallelism.layout import LayoutError

MAX_DECODE_QUERIES = 16
"""Queries of a sequence in a decode step: one, or a few that are verified together."""


def set_context_length(kernels: pl.DataFrame, keys: int) -> pl.DataFrame:
    """Return the kernel table of a decode batch whose sequences see other numbers of keys.

    Only attention over the cache grows with them; windows stay as they are.

    Args:
        kernels: The kernel table.
        keys: Keys of each sequence, its own token included.

    Returns:
        The table with another ``kv_len``, and ``changed``, whether it is another one.

    Raises:
        LayoutError: No attention of a decode batch has known queries and keys.
    """
    known = (pl.col("family") == "attention") & pl.col("kv_len").is_not_null() & (pl.col("phase") != "backward")
    decode = known & (pl.col("q_len") <= MAX_DECODE_QUERIES) & (pl.col("q_len") < pl.col("kv_len"))
    if not kernels.select(decode.any()).item():
        raise LayoutError(layouts.CONTEXT_UNKNOWN())
    return kernels.with_columns(
        kv_len=pl.when(decode).then(keys).otherwise("kv_len"),
        changed=(decode & (pl.col("kv_len") != keys)).fill_null(False),
    )
