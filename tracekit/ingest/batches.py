"""How large the batches are that serving engines mark: vLLM's ``execute_...`` and SGLang's ``step[...]``."""

import polars as pl

from tracekit.ingest.captures import annotated, within
from tracekit.trace import RankTrace

_NAME = pl.col("name").str
_EACH = r"\((\d+)(?:_\d+)?\)"
"""Tokens of the requests of one kind; some versions add the pairs of query and key."""
_BOTH = rf"execute_context_\d+{_EACH}_generation_\d+{_EACH}"
_SIZE = pl.coalesce(
    _NAME.extract(r"execute_(\d+)_").cast(pl.Int64),
    _NAME.extract(_BOTH, 1).cast(pl.Int64) + _NAME.extract(_BOTH, 2).cast(pl.Int64),
    _NAME.extract(r"^step\[.*\btoks=(\d+)").cast(pl.Int64),
    _NAME.extract(r"^step\[.*\bbs=(\d+)").cast(pl.Int64),
)


def sizes(trace: RankTrace, calls: pl.DataFrame) -> pl.DataFrame:
    """Of the calls that an engine made in a batch the ``correlation`` and ``size``: its tokens, else its sequences.

    CUDA graphs are padded up to the next size that was captured.

    Args:
        trace: What the rank recorded.
        calls: Some of its calls, in order.
    """
    marked = within(calls.select("correlation", "pid", "ts_ns"), annotated(trace, _SIZE))
    return marked.select("correlation", "size").unique("correlation")
