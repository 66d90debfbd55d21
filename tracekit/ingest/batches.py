"""Batches that serving engines annotate: vLLM's ``execute_...`` and SGLang's ``step[...]``."""

from dataclasses import dataclass

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

    Args:
        trace: The rank's trace.
        calls: Some of its calls, in order.

    Returns:
        ``correlation`` and ``size`` of each such call.
    """
    marked = select_within(calls.select("correlation", "pid", "ts_ns"), find_sized_annotations(trace, _BATCH_SIZE))
    return marked.select("correlation", "size").unique("correlation")
