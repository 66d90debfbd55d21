"""Join the kernels that CUDA graphs replay to the calls that captured them.

A replay records names and times only. The ops and their shapes stand in the trace of the capture: vLLM writes one with
``capture_torch_profiler``, SGLang with ``--enable-profile-cuda-graph``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from tracekit.format import abbreviate_names
from tracekit.ingest import batches
from tracekit.ingest.batches import MEMCPY, MEMSET, UNNAMED_KERNEL, GraphCaptures, find_captures
from tracekit.messages import Message
from tracekit.messages import traces as messages
from tracekit.schema import CALLS, OPS
from tracekit.trace import CapturedGraphs, RankTrace

GRAPH_LAUNCH_CALLS = r"GraphLaunch(_|$)"
"""Calls that launch a CUDA graph; with a default stream per thread, names end in ``_ptsz`` (HIP: ``_spt``)."""

# Fraction of a graph's kernels that may be missing on either side: profilers lose some.
MAX_MISSING_FRACTION = 0.01

_NAME = pl.col("name").str


def has_replays(rank: RankTrace) -> bool:
    """Return whether CUDA graphs were launched."""
    return bool(rank.calls["name"].str.contains(GRAPH_LAUNCH_CALLS).any())


def join_captures(rank: RankTrace, traces: Sequence[RankTrace]) -> RankTrace:
    """Join the ops and shapes of captures to the kernels that the rank's CUDA graphs replay.

    A replay belongs to the capture that launched the same kernels equally often. If several captures fit, those for the
    fewest tokens that hold the replayed batch are chosen; if these ran different shapes, the replay is left without
    shapes. Within a graph, kernels are matched by their position among kernels of the same name. Where the calls of a
    capture do not name their kernels (NVIDIA), the graph must hold exactly as many, and the order matches them.

    Args:
        rank: A trace as it was read.
        traces: Traces of captures; of ``rank`` itself, or of the same job.
    """
    captures = find_captures(traces)
    replays = _list_replays(rank)
    if captures is None or replays.is_empty():
        return rank
    chosen = _choose_captures(replays, captures)
    launched = _match_calls(replays, captures, chosen.filter("is_clear"))
    used = chosen.filter(pl.col("capture").is_in(launched["capture"].unique().implode()))
    warnings = (*rank.warnings, *_describe_matches(replays, launched, used, chosen, captures))
    return replace(rank, captured=_build_captured_graphs(rank, captures, launched), warnings=warnings)


def _list_replays(rank: RankTrace) -> pl.DataFrame:
    """List the activities of graphs in capture order, each twice: to match with ``named`` captures and with others.

    Returns:
        Columns ``row``, ``replay`` (correlation of the launch), ``size`` of the batch, ``named``, ``token`` and
            ``place`` among those of the same token.
    """
    launches = rank.calls.filter(pl.col("name").str.contains(GRAPH_LAUNCH_CALLS)).select("correlation", "pid", "ts_ns")
    found = (
        rank.activities.with_row_index("row")
        .join(launches.unique("correlation"), on="correlation", suffix="_launch")
        .join(batches.find_call_batch_sizes(rank, launches), on="correlation", how="left")
        .sort("correlation", "graph_node_id", "ts_ns", "row", nulls_last=True)
        .rename({"correlation": "replay"})
    )
    kernel = pl.col("kind") == "kernel"
    # AMD's runtime copies and sets memory with kernels.
    by_name = (
        pl.when(_NAME.contains("copyBuffer"))
        .then(pl.lit(MEMCPY))
        .when(_NAME.contains("fillBuffer"))
        .then(pl.lit(MEMSET))
        .otherwise("name")
    )
    ordered = (pl.col("graph_node_id").is_not_null().all() | (pl.col("stream").n_unique() == 1)).over("replay")
    named = found.with_columns(named=True, token=pl.when(kernel).then(by_name).otherwise("kind"))
    unnamed = found.filter(ordered).with_columns(
        named=False, token=pl.when(kernel).then(pl.lit(UNNAMED_KERNEL)).otherwise("kind")
    )
    place = pl.int_range(pl.len()).over("replay", "named", "token").alias("place")
    both = pl.concat([named, unnamed])
    return both.select(pl.col("row").cast(pl.Int64), "replay", "size", "named", "token", place)


def _choose_captures(replays: pl.DataFrame, captures: GraphCaptures) -> pl.DataFrame:
    """Choose the capture of each replay: ``replay``, ``capture``, both sizes, and whether the choice ``is_clear``."""
    replayed = replays.group_by("replay", "size", "named", "token").len("held")
    content = pl.struct("token", "held").hash().sort().cast(pl.String).str.join(" ")
    alike = replayed.group_by("replay", "size", "named").agg(content=content)
    kinds = alike.with_columns(kind=pl.struct("content", "size", "named").rank("dense"))
    shown = kinds.unique("kind").join(replayed, on=["replay", "named"]).select("kind", "token", "held")
    captured = captures.calls.group_by("capture", "token").len("launched")
    common = (
        shown.join(captured, on="token")
        .group_by("kind", "capture")
        .agg(common=pl.min_horizontal("held", "launched").sum())
    )
    missing = pl.col("held") + pl.col("launched") - 2 * pl.col("common")
    fitting = (
        common.join(shown.group_by("kind").agg(pl.col("held").sum()), on="kind")
        .join(captured.group_by("capture").agg(pl.col("launched").sum()), on="capture")
        .join(kinds.unique("kind").select("kind", "size", is_named="named"), on="kind")
        .join(captures.graphs.rename({"size": "captured_for"}), on="capture")
        .filter(pl.col("named") == pl.col("is_named"))
        .filter((pl.col("captured_for") >= pl.col("size")).fill_null(True))
        .with_columns(missing=missing)
        .filter(pl.col("missing") <= pl.when("named").then(MAX_MISSING_FRACTION * pl.col("held")).otherwise(0))
    )
    best = (
        fitting.filter(pl.col("missing") == pl.col("missing").min().over("kind"))
        .filter((pl.col("captured_for") == pl.col("captured_for").min().over("kind")).fill_null(True))
        .sort("kind", "capture")
        .group_by("kind", maintain_order=True)
        .agg(pl.col("capture", "captured_for").first(), is_clear=pl.col("alike").n_unique() == 1)
    )
    return kinds.join(best, on="kind").select("replay", "named", "capture", "size", "captured_for", "is_clear")


def _match_calls(replays: pl.DataFrame, captures: GraphCaptures, chosen: pl.DataFrame) -> pl.DataFrame:
    """Match each activity (``row``) with its call: ``place_of_call`` in ``captures.calls``, ``replay``, ``capture``."""
    calls = captures.calls.with_row_index("place_of_call").select(
        pl.col("place_of_call").cast(pl.Int64),
        "capture",
        "token",
        place=pl.int_range(pl.len()).over("capture", "token"),
        launched=pl.len().over("capture", "token"),
    )
    return (
        replays.with_columns(held=pl.len().over("replay", "named", "token"))
        .join(chosen.select("replay", "named", "capture"), on=["replay", "named"])
        .join(calls, on=["capture", "token", "place"])
        .filter(pl.col("held") == pl.col("launched"))
        .select("row", "replay", "capture", "place_of_call")
    )


def _build_captured_graphs(rank: RankTrace, captures: GraphCaptures, launched: pl.DataFrame) -> CapturedGraphs | None:
    if launched.is_empty():
        return None
    used = pl.col("capture").is_in(launched["capture"].unique().implode())
    calls = captures.calls.with_row_index("place_of_call").filter(used).with_row_index("call")
    places = launched.join(
        calls.select(pl.col("call").cast(pl.Int64), pl.col("place_of_call").cast(pl.Int64)), on="place_of_call"
    )
    launched_by = pl.repeat(None, rank.activities.height, dtype=pl.Int64, eager=True).scatter(
        places["row"], places["call"]
    )
    return CapturedGraphs(OPS.conform(captures.ops.filter(used)), CALLS.conform(calls), launched_by)


def _describe_matches(
    replays: pl.DataFrame, launched: pl.DataFrame, used: pl.DataFrame, chosen: pl.DataFrame, captures: GraphCaptures
) -> Iterator[Message]:
    kernels, graphs = replays["row"].n_unique(), replays["replay"].n_unique()
    known = launched["replay"].n_unique()
    sources = captures.graphs.filter(pl.col("capture").is_in(used["capture"].unique().implode()))["source"].unique()
    names = sorted(sources)
    unclear = chosen.filter(~pl.col("is_clear"))["replay"].n_unique()
    if known:
        yield messages.CAPTURE_JOINED(
            known_kernels=len(launched),
            kernels=kernels,
            known_replays=known,
            replays=graphs,
            path=abbreviate_names(names[0], len(names) - 1),
        )
    padded = used.filter(pl.col("captured_for") > pl.col("size"))
    if padded.height:
        size, larger = padded.select("size", "captured_for").row(0)
        yield messages.CAPTURE_PADDED(replays=padded.height, size=size, captured_for=larger)
    if unclear:
        yield messages.CAPTURES_AMBIGUOUS(replays=unclear)
    if graphs - known - unclear > 0:
        yield messages.CAPTURES_WITHOUT_MATCH(unmatched=graphs - known - unclear, replays=graphs)


WHOLE_GRAPH = "CUDA graph"
"""Begin of their names; the graph's number follows, where it is known."""
WHOLE_GRAPH_NAME = rf"^{WHOLE_GRAPH}(?: \d+)?$"


def is_whole_graph() -> pl.Expr:
    """Whether an activity is the launch of a whole graph."""
    return pl.col("name").str.contains(WHOLE_GRAPH_NAME)
