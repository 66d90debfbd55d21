"""The batches that serving engines mark: vLLM's ``execute_...`` and SGLang's ``step[...]``."""

import polars as pl

from tracekit.ingest.captures import annotated, within
from tracekit.ingest.nesting import outermost
from tracekit.trace import RankTrace

_NAME = pl.col("name").str
_EACH = r"\((\d+)(?:_\d+)?\)"
"""Tokens of the requests of one kind; some versions add the pairs of query and key."""
_BOTH = rf"execute_context_\d+{_EACH}_generation_\d+{_EACH}"
_SIZE = pl.coalesce(
    _NAME.extract(r"execute_(\d+)_").cast(pl.Int64, strict=False),
    _NAME.extract(_BOTH, 1).cast(pl.Int64, strict=False) + _NAME.extract(_BOTH, 2).cast(pl.Int64, strict=False),
    _NAME.extract(r"^step\[.*\btoks=(\d+)").cast(pl.Int64, strict=False),
    _NAME.extract(r"^step\[.*\bbs=(\d+)").cast(pl.Int64, strict=False),
)
_PROMPTS, _REPLIES = (
    _NAME.extract(rf"{word}_(\d+)\(").cast(pl.Int64, strict=False) for word in ("context", "generation")
)
_KIND = pl.coalesce(
    pl.when((_PROMPTS > 0) & (_REPLIES > 0)).then(pl.lit("mixed")),
    pl.when(_PROMPTS > 0).then(pl.lit("prefill")),
    pl.when(_REPLIES > 0).then(pl.lit("decode")),
    _NAME.extract(r"^step\[(\w+)").replace("EXTEND", "PREFILL").str.to_lowercase(),
)


def find(trace: RankTrace) -> pl.DataFrame:
    """The batches of a trace that aren't empty, in order, each up to where the next one begins.

    Returns:
        ``start_ns`` and ``end_ns`` on the CPU, ``pid``, ``tid``, the ``kind`` (``prefill``, ``decode``, ``mixed``, or
        the engine's own word) and the ``tokens``, which of SGLang's decoding are its sequences. Of marks within each
        other the outer one counts.
    """
    marks = trace.annotations.with_columns(kind=_KIND, tokens=_SIZE).filter(pl.col("tokens") > 0)
    until = pl.col("ts_ns").shift(-1).fill_null(pl.col("ts_ns") + pl.col("dur_ns"))
    return outermost(marks).select("pid", "tid", "kind", "tokens", start_ns="ts_ns", end_ns=until)


def sizes(trace: RankTrace, calls: pl.DataFrame) -> pl.DataFrame:
    """Of the calls that an engine made in a batch the ``correlation`` and ``size``: its tokens, else its sequences.

    CUDA graphs are padded up to the next size that was captured.

    Args:
        trace: What the rank recorded.
        calls: Some of its calls, in order.
    """
    marked = within(calls.select("correlation", "pid", "ts_ns"), annotated(trace, _SIZE))
    return marked.select("correlation", "size").unique("correlation")
