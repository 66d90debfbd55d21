"""Batches that serving engines annotate: vLLM's ``execute_...`` and SGLang's ``step[...]``."""

import polars as pl

from tracekit.ingest.capture_windows import find_sized_annotations, select_within
from tracekit.ingest.nesting import select_outermost
from tracekit.trace import RankTrace

_NAME = pl.col("name").str
_TOKEN_COUNT = r"\((\d+)(?:_\d+)?\)"
"""Token count of the requests of one type; some versions add the number of query-key pairs."""
_PREFILL_AND_DECODE = rf"execute_context_\d+{_TOKEN_COUNT}_generation_\d+{_TOKEN_COUNT}"
_BATCH_SIZE = pl.coalesce(
    _NAME.extract(r"execute_(\d+)_").cast(pl.Int64, strict=False),
    _NAME.extract(_PREFILL_AND_DECODE, 1).cast(pl.Int64, strict=False)
    + _NAME.extract(_PREFILL_AND_DECODE, 2).cast(pl.Int64, strict=False),
    _NAME.extract(r"^step\[.*\btoks=(\d+)").cast(pl.Int64, strict=False),
    _NAME.extract(r"^step\[.*\bbs=(\d+)").cast(pl.Int64, strict=False),
)
_PREFILL_REQUESTS, _DECODE_REQUESTS = (
    _NAME.extract(rf"{word}_(\d+)\(").cast(pl.Int64, strict=False) for word in ("context", "generation")
)
_BATCH_KIND = pl.coalesce(
    pl.when((_PREFILL_REQUESTS > 0) & (_DECODE_REQUESTS > 0)).then(pl.lit("mixed")),
    pl.when(_PREFILL_REQUESTS > 0).then(pl.lit("prefill")),
    pl.when(_DECODE_REQUESTS > 0).then(pl.lit("decode")),
    _NAME.extract(r"^step\[(\w+)").replace("EXTEND", "PREFILL").str.to_lowercase(),
)


def find_batches(trace: RankTrace) -> pl.DataFrame:
    """Find the non-empty batches of a trace, in order, each up to the start of the next one.

    Returns:
        ``start_ns`` and ``end_ns`` on the host, ``pid``, ``tid``, ``kind`` (``prefill``, ``decode``, ``mixed``, or the
            engine's own word) and ``tokens`` (for SGLang's decode batches the number of sequences). Of nested
            annotations the outermost one counts.
    """
    marks = trace.annotations.with_columns(kind=_BATCH_KIND, tokens=_BATCH_SIZE).filter(pl.col("tokens") > 0)
    until = pl.col("ts_ns").shift(-1).fill_null(pl.col("ts_ns") + pl.col("dur_ns"))
    return select_outermost(marks).select("pid", "tid", "kind", "tokens", start_ns="ts_ns", end_ns=until)


def find_call_batch_sizes(trace: RankTrace, calls: pl.DataFrame) -> pl.DataFrame:
    """Find the batch size of calls that an engine made within a batch: its tokens, else its sequences.

    CUDA graphs are padded to the next captured size.

    Args:
        trace: The rank's trace.
        calls: Some of its calls, in order.

    Returns:
        ``correlation`` and ``size`` of each such call.
    """
    marked = select_within(calls.select("correlation", "pid", "ts_ns"), find_sized_annotations(trace, _BATCH_SIZE))
    return marked.select("correlation", "size").unique("correlation")
