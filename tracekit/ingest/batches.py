"""Batches that serving engines annotate, and what they captured into CUDA graphs.

vLLM marks a batch by ``execute_...``, SGLang by ``step[...]``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from tracekit.ingest.correlations import KERNEL_LAUNCHES
from tracekit.trace import RankTrace


def select_outermost(spans: pl.DataFrame, *apart: str) -> pl.DataFrame:
    """Select the spans that lie within no other, in order of start.

    Args:
        spans: With ``ts_ns`` and ``dur_ns``.
        apart: Columns, such as those of a thread; spans that differ in them are not nested.
    """
    ended = (pl.col("ts_ns") + pl.col("dur_ns")).cum_max().shift()
    ended = ended.over(*apart) if apart else ended
    return spans.sort("ts_ns", -pl.col("dur_ns")).filter((pl.col("ts_ns") >= ended).fill_null(value=True))


BEGIN_CAPTURE_CALLS, END_CAPTURE_CALLS = r"StreamBeginCapture(ToGraph)?(_|$)", r"StreamEndCapture(_|$)"
CAPTURED_CALLS = f"{KERNEL_LAUNCHES}|Memcpy|Memset"

MEMCPY, MEMSET, UNNAMED_KERNEL = "memcpy", "memset", "kernel"

# What vLLM and SGLang call a capture, and SGLang its file: the tokens or sequences that the graph is for.
_CAPTURE_SIZE = pl.col("name").str.extract(r"^capture_(\d+)").cast(pl.Int64, strict=False)
_CAPTURE_SIZE_IN_FILE_NAME = re.compile(r"(?:^|[/_.:-])bs_(\d{1,9})")


class GraphCaptures(NamedTuple):
    """Captures of one or several traces, numbered consecutively.

    Attributes:
        graphs: A row per capture: ``capture`` (its number), ``source``, ``size`` (tokens or sequences, where known),
            ``named`` (whether its calls name their kernels, as AMD's do), ``alike`` (equal for the same ops on the same
            shapes).
        calls: The calls that added something to a graph, in order, with ``capture`` and the ``token`` to match by.
        ops: The ops during the capture, with ``capture``.
    """

    graphs: pl.DataFrame
    calls: pl.DataFrame
    ops: pl.DataFrame


def find_captures(traces: Sequence[RankTrace]) -> GraphCaptures | None:
    """Find the captures that the traces recorded; ``None`` if there are none."""
    found: list[GraphCaptures] = []
    known = 0
    for trace in traces:
        windows = _find_capture_windows(trace.calls, known)
        known += windows.height
        if windows.height:
            found.append(_extract_captures(trace, windows))
    return GraphCaptures(*(pl.concat(tables) for tables in zip(*found, strict=True))) if found else None


def select_within(table: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Select rows of ``table`` that begin within a window of their process, and add the window's other columns.

    Args:
        table: Ordered by ``ts_ns``, with ``pid``.
        windows: With ``pid``, ``begin`` and ``end``, ordered by ``begin``; of several around a row the last counts.
    """
    joined = table.join_asof(windows, left_on="ts_ns", right_on="begin", by="pid", check_sortedness=False)
    return joined.filter(pl.col("ts_ns") < pl.col("end")).drop("begin", "end", strict=False)


def find_sized_annotations(trace: RankTrace, size: pl.Expr) -> pl.DataFrame:
    """Find annotations whose name gives a ``size``, as windows."""
    marks = trace.annotations.select("pid", begin="ts_ns", end=pl.col("ts_ns") + pl.col("dur_ns"), size=size)
    return marks.drop_nulls("size").sort("begin")


def _find_capture_windows(calls: pl.DataFrame, known: int) -> pl.DataFrame:
    """Find the windows from the end of a call that begins a capture to the start of the call that ends it."""
    begins = calls.filter(pl.col("name").str.contains(BEGIN_CAPTURE_CALLS)).select(
        "pid", begin=pl.col("ts_ns") + pl.col("dur_ns")
    )
    ends = calls.filter(pl.col("name").str.contains(END_CAPTURE_CALLS)).select("pid", end="ts_ns")
    windows = begins.sort("begin").join_asof(
        ends, left_on="begin", right_on="end", by="pid", strategy="forward", coalesce=False, check_sortedness=False
    )
    return windows.drop_nulls("end").select(
        "pid", "begin", "end", capture=pl.int_range(known, known + pl.len(), dtype=pl.Int64)
    )


def _extract_captures(trace: RankTrace, windows: pl.DataFrame) -> GraphCaptures:
    calls = _add_match_tokens(select_within(trace.calls.filter(pl.col("name").str.contains(CAPTURED_CALLS)), windows))
    ops = select_within(trace.ops, windows)
    shapes = pl.struct("name", "input_dims", "input_types").hash().cast(pl.String).str.join(" ")
    graphs = (
        windows.select("capture", source=pl.lit(trace.source), size=_find_capture_sizes(trace, windows))
        .join(calls.group_by("capture").agg(pl.col("named").first()), on="capture", maintain_order="left")
        .join(ops.group_by("capture", maintain_order=True).agg(alike=shapes), on="capture", how="left")
    )
    return GraphCaptures(graphs, calls.drop("named"), ops)


def _add_match_tokens(calls: pl.DataFrame) -> pl.DataFrame:
    """Add the ``token`` to match calls by: the kernel's name, or only whether it is a kernel, copy or memset."""
    kind = (
        pl.when(pl.col("name").str.contains("Memcpy"))
        .then(pl.lit(MEMCPY))
        .when(pl.col("name").str.contains("Memset"))
        .then(pl.lit(MEMSET))
    )
    named = pl.coalesce(kind, "kernel")
    return calls.with_columns(named=named.is_not_null().all().over("capture")).with_columns(
        token=pl.when("named").then(named).otherwise(pl.coalesce(kind, pl.lit(UNNAMED_KERNEL)))
    )


def _find_capture_sizes(trace: RankTrace, windows: pl.DataFrame) -> pl.Series:
    """Find the tokens or sequences for which each graph was captured."""
    in_name = _CAPTURE_SIZE_IN_FILE_NAME.search(trace.source)
    told = select_within(windows.select("capture", "pid", ts_ns="begin"), find_sized_annotations(trace, _CAPTURE_SIZE))
    sizes = windows.join(told.select("capture", "size"), on="capture", how="left", maintain_order="left")["size"]
    return sizes.fill_null(int(in_name[1])) if in_name else sizes


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
_TOKENS_AND_PAIRS = r"\((\d+)_(\d+)\)"
"""Tokens of the requests of one type, and the pairs of a token and a key that it sees."""
_SUMS = r"\(sq(\d+)sk\d+sqsq\d+sqsk(\d+)\)"
"""Sums over the requests of one type: of queries q, keys k, q squared, and q times k."""
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


def find_served_batches(trace: RankTrace) -> pl.DataFrame:
    """Find what the batches of a trace process, in order.

    Returns:
        ``begin`` and ``end`` on the host, ``pid``, ``batch`` (its number), ``tokens``, and for prefill and for decode
        each ``requests``, ``queries`` and ``pairs`` (of a query and a key that it sees, before causal masking), such as
        ``decode_pairs``; null where the engine doesn't tell.
    """
    counts = {
        f"{name}_{count}": number
        for name, word in (("prefill", "context"), ("decode", "generation"))
        for count, number in _parse_counts(word).items()
    }
    marks = trace.annotations.with_columns(tokens=_BATCH_SIZE, **counts).filter(pl.col("tokens") > 0)
    return (
        select_outermost(marks)
        .select("pid", "tokens", *counts, begin="ts_ns", end=pl.col("ts_ns") + pl.col("dur_ns"))
        .sort("begin")
        .with_row_index("batch")
    )


def find_requests(trace: RankTrace) -> pl.DataFrame:
    """Find how many requests of each type the batches of a trace serve, in order.

    Returns:
        ``start_ns``, ``prompts`` and ``sequences`` (that get their next token); null where the engine doesn't tell.
    """
    size = _NAME.extract(r"^step\[.*\bbs=(\d+)").cast(pl.Int64, strict=False)
    marks = trace.annotations.with_columns(tokens=_BATCH_SIZE, kind=_BATCH_KIND).filter(pl.col("tokens") > 0)
    return select_outermost(marks).select(
        start_ns="ts_ns",
        prompts=pl.coalesce(_PREFILL_REQUESTS, pl.when(pl.col("kind") == "prefill").then(size)),
        sequences=pl.coalesce(_DECODE_REQUESTS, pl.when(pl.col("kind") == "decode").then(size)),
    )


def _parse_counts(word: str) -> dict[str, pl.Expr]:
    """Parse the counts of one type of requests, ``context`` or ``generation``."""

    def extract(pattern: str, group: int = 1) -> pl.Expr:
        return _NAME.extract(rf"{word}_{pattern}", group).cast(pl.Int64, strict=False)

    numbers = r"\d+"
    return {
        "requests": extract(r"(\d+)\("),
        "queries": pl.coalesce(extract(numbers + _TOKEN_COUNT), extract(numbers + _SUMS)),
        "pairs": pl.coalesce(extract(numbers + _TOKENS_AND_PAIRS, 2), extract(numbers + _SUMS, 2)),
    }


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding of the mean batch: a draft's tokens are verified together, and some are accepted.

    Attributes:
        sequences: Sequences that get tokens, each at least one.
        verified: Tokens that are verified for them, each sequence's next one included.
    """

    sequences: float
    verified: float

    @property
    def per_sequence(self) -> float:
        """Tokens that are verified for a sequence."""
        return self.verified / self.sequences


def find_speculation(trace: RankTrace, start_ns: pl.Series | None = None) -> Speculation | None:
    """Find how many tokens decoding batches verify; None if they have no more tokens than sequences, or don't tell.

    Args:
        trace: What the rank recorded.
        start_ns: Starts of the batches that count; by default all.
    """
    size, tokens = (_NAME.extract(rf"^step\[.*\b{word}=(\d+)").cast(pl.Int64, strict=False) for word in ("bs", "toks"))
    decodes = ~pl.col("kind").is_in(["prefill", "mixed"])
    marks = trace.annotations.with_columns(tokens=_BATCH_SIZE, kind=_BATCH_KIND).filter(pl.col("tokens") > 0)
    counts = select_outermost(marks).select(
        "ts_ns",
        sequences=pl.coalesce(_DECODE_REQUESTS, pl.when(decodes).then(size)),
        verified=pl.coalesce(_parse_counts("generation")["queries"], pl.when(decodes).then(tokens)),
    )
    chosen = counts if start_ns is None else counts.filter(pl.col("ts_ns").is_in(start_ns.implode()))
    sequences, verified = chosen.drop_nulls().select(pl.col("sequences", "verified").mean()).row(0)
    return Speculation(sequences, verified) if sequences and verified > sequences else None


def find_call_batch_sizes(trace: RankTrace, calls: pl.DataFrame) -> pl.DataFrame:
    """Find the batch size of calls that an engine made within a batch: its tokens, else its sequences.

    CUDA graphs are padded to the next captured size.

    Returns:
        ``correlation`` and ``size`` of each such call.
    """
    marked = select_within(calls.select("correlation", "pid", "ts_ns"), find_sized_annotations(trace, _BATCH_SIZE))
    return marked.select("correlation", "size").unique("correlation")
