"""Find what was captured into CUDA graphs."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from tracekit.ingest.correlations import KERNEL_LAUNCHES
from tracekit.trace import RankTrace

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
