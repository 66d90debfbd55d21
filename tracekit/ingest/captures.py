"""What was put into CUDA graphs while they were captured."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from tracekit.trace import RankTrace

BEGIN, END = r"StreamBeginCapture(ToGraph)?(_|$)", r"StreamEndCapture(_|$)"
LAUNCH = r"LaunchKernel|LaunchCooperativeKernel|Memcpy|Memset"

MEMCPY, MEMSET, UNNAMED = "memcpy", "memset", "kernel"

# What vLLM and SGLang call a capture, and SGLang its file: the tokens or sequences that the graph is for.
_SIZE = pl.col("name").str.extract(r"^capture_(\d+)").cast(pl.Int64, strict=False)
_SIZE_IN_NAME = re.compile(r"(?:^|[/_.:-])bs_(\d{1,9})")


class Captures(NamedTuple):
    """Captures of one or several traces, numbered throughout.

    Attributes:
        graphs: A row per capture: ``capture`` (its number), ``source``, ``size`` (tokens or sequences, where told),
            ``named`` (whether its calls tell their kernels, as AMD's do), ``alike`` (equal for the same ops on the
            same shapes).
        calls: The calls that put something into a graph, in order, with ``capture`` and the ``token`` to match by.
        ops: The ops meanwhile, with ``capture``.
    """

    graphs: pl.DataFrame
    calls: pl.DataFrame
    ops: pl.DataFrame


def find(traces: Sequence[RankTrace]) -> Captures | None:
    """The captures that the traces recorded; ``None`` if there are none."""
    found: list[Captures] = []
    known = 0
    for trace in traces:
        windows = _windows(trace.calls, known)
        known += windows.height
        if windows.height:
            found.append(_of_trace(trace, windows))
    return Captures(*(pl.concat(tables) for tables in zip(*found, strict=True))) if found else None


def within(table: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Rows of ``table`` that begin within a window of their process, with the window's other columns.

    Args:
        table: Ordered by ``ts_ns``, with ``pid``.
        windows: With ``pid``, ``begin`` and ``end``, ordered by ``begin``; of several around a row the last counts.
    """
    joined = table.join_asof(windows, left_on="ts_ns", right_on="begin", by="pid", check_sortedness=False)
    return joined.filter(pl.col("ts_ns") < pl.col("end")).drop("begin", "end", strict=False)


def annotated(trace: RankTrace, size: pl.Expr) -> pl.DataFrame:
    """Annotations whose name tells a ``size``, as windows."""
    marks = trace.annotations.select("pid", begin="ts_ns", end=pl.col("ts_ns") + pl.col("dur_ns"), size=size)
    return marks.drop_nulls("size").sort("begin")


def _windows(calls: pl.DataFrame, known: int) -> pl.DataFrame:
    """From the end of each call that begins a capture to the start of the one that ends it."""
    begins = calls.filter(pl.col("name").str.contains(BEGIN)).select("pid", begin=pl.col("ts_ns") + pl.col("dur_ns"))
    ends = calls.filter(pl.col("name").str.contains(END)).select("pid", end="ts_ns")
    windows = begins.sort("begin").join_asof(
        ends, left_on="begin", right_on="end", by="pid", strategy="forward", coalesce=False, check_sortedness=False
    )
    return windows.drop_nulls("end").select(
        "pid", "begin", "end", capture=pl.int_range(known, known + pl.len(), dtype=pl.Int64)
    )


def _of_trace(trace: RankTrace, windows: pl.DataFrame) -> Captures:
    calls = _tokens(within(trace.calls.filter(pl.col("name").str.contains(LAUNCH)), windows))
    ops = within(trace.ops, windows)
    shapes = pl.struct("name", "input_dims", "input_types").hash().cast(pl.String).str.join(" ")
    graphs = (
        windows.select("capture", source=pl.lit(trace.source), size=_sizes(trace, windows))
        .join(calls.group_by("capture").agg(pl.col("named").first()), on="capture", maintain_order="left")
        .join(ops.group_by("capture", maintain_order=True).agg(alike=shapes), on="capture", how="left")
    )
    return Captures(graphs, calls.drop("named"), ops)


def _tokens(calls: pl.DataFrame) -> pl.DataFrame:
    """With what each call can be told by: the kernel's name, or only that it is a kernel, a copy or a set."""
    kind = (
        pl.when(pl.col("name").str.contains("Memcpy"))
        .then(pl.lit(MEMCPY))
        .when(pl.col("name").str.contains("Memset"))
        .then(pl.lit(MEMSET))
    )
    named = pl.coalesce(kind, "kernel")
    return calls.with_columns(named=named.is_not_null().all().over("capture")).with_columns(
        token=pl.when("named").then(named).otherwise(pl.coalesce(kind, pl.lit(UNNAMED)))
    )


def _sizes(trace: RankTrace, windows: pl.DataFrame) -> pl.Series:
    """For how many tokens or sequences each graph was captured."""
    in_name = _SIZE_IN_NAME.search(trace.source)
    told = within(windows.select("capture", "pid", ts_ns="begin"), annotated(trace, _SIZE))
    sizes = windows.join(told.select("capture", "size"), on="capture", how="left", maintain_order="left")["size"]
    return sizes.fill_null(int(in_name[1])) if in_name else sizes
