"""What each track of a timeline shows: one frame of slices a function; times in nanoseconds from the drawn origin."""

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.nodes import NONE
from tracekit.render.perfetto.lane import Lane
from tracekit.replay.causes import Cause
from tracekit.replay.engine import Timeline
from tracekit.replay.run import Run

CRITICAL, IDLE = 1_000_001, 1_000_002
"""Threads of a GPU's process beside its streams."""
DEVICE = 10_000
"""From the threads of one GPU to those of the next, where a rank drives several."""
CATEGORY = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}


def chosen(run: Run) -> Ints:
    """Rows of the kernel table in the chosen steps."""
    return np.flatnonzero(run.in_steps.to_numpy())


def begin_ns(run: Run, timeline: Timeline, path: pl.DataFrame) -> int:
    """The first moment of a timeline's chosen steps: of its critical path, or of a launch or kernel before it."""
    rows = chosen(run)
    launchers = run.graph.nodes.launcher[rows]
    launched = timeline.start_ns[launchers[launchers != NONE]]
    return int(np.concatenate([path["begin_ns"].to_numpy(), launched, timeline.activity_start_ns[rows]]).min())


def main_causes(pieces: pl.DataFrame) -> pl.DataFrame:
    """Each kernel that the GPU stood idle before, with the ``cause`` of most of that.

    Args:
        pieces: As :func:`tracekit.replay.idle.attribute` finds them.
    """
    empty = pieces.filter(pl.col("cause") != Cause.RENDEZVOUS)
    causes = empty.drop_nulls("kernel").group_by("kernel", "cause").agg(pl.col("time_ns").sum())
    longest = causes.sort("time_ns", "cause", descending=[True, False])
    return longest.group_by("kernel", maintain_order=True).agg(pl.col("cause").first())


def ranks(run: Run) -> list[int]:
    """The ranks that are drawn."""
    return [rank.rank or 0 for rank in run.ranks]


def kernels(lane: Lane, rank: int) -> pl.DataFrame:
    """A slice per kernel, on its stream."""
    table = _activities(lane, rank)
    share = 100 * pl.col("bound_us") / pl.col("time_us")
    return table.select(
        "start_ns",
        "dur_ns",
        cat=pl.col("kind").replace(CATEGORY),
        name="name",
        tid="thread",
        args=pl.struct(
            "stream",
            "correlation",
            "op",
            "family",
            "dtype",
            "step",
            shapes="input_dims",
            device=pl.lit(lane.place),
            roofline_pct=share.round(1),
        ),
    )


def calls(lane: Lane) -> pl.DataFrame:
    """A slice per call that touches the GPU, on its CPU thread."""
    run = lane.run
    nodes, timeline = run.graph.nodes, lane.timeline
    count = nodes.cpu - nodes.marks
    ends = np.concatenate([lane.path["end_ns"].to_numpy(), timeline.activity_end_ns[chosen(run)]])
    end = int(ends.max()) - lane.origin_ns
    table = pl.DataFrame(
        {
            "start_ns": timeline.start_ns[:count] - lane.origin_ns,
            "dur_ns": timeline.end_ns[:count] - timeline.start_ns[:count],
            "name": nodes.names[:count],
            "tid": nodes.lane[:count] + 1,
            "correlation": nodes.correlation[:count],
        }
    )
    inside = pl.col("start_ns").is_between(0, end)
    return table.filter(inside).with_columns(cat=pl.lit("cuda_runtime"), args=pl.struct("correlation"))


def idle(lane: Lane, rank: int) -> pl.DataFrame:
    """A slice per stretch in which the GPU ran nothing, named by the cause of most of it."""
    ordered = _activities(lane, rank).sort("start_ns")
    reached = (pl.col("start_ns") + pl.col("dur_ns")).cum_max().shift(1)
    gaps = ordered.select(
        "kernel", start_ns=reached, dur_ns=pl.col("start_ns") - reached, before=pl.coalesce("op", "name")
    )
    idle_gaps = gaps.filter(pl.col("dur_ns") > 0).join(lane.idle, on="kernel", how="left", maintain_order="left")
    return idle_gaps.select(
        "start_ns",
        "dur_ns",
        cat=pl.lit("gpu_idle"),
        name=pl.col("cause").fill_null("unexplained"),
        tid=pl.lit(IDLE),
        args=pl.struct("before"),
    )


def roofline(lane: Lane, rank: int) -> pl.DataFrame:
    """The share of its roofline that the kernel then running reaches; 0 where none runs or its work isn't known."""
    table = _activities(lane, rank).sort("start_ns")
    begin = table.select("start_ns", value=(100 * pl.col("bound_us") / pl.col("time_us")).fill_null(0.0).fill_nan(0.0))
    until = (pl.col("start_ns") + pl.col("dur_ns")).cum_max()
    ends = table.select(start_ns=until, next=pl.col("start_ns").shift(-1)).filter(
        pl.col("next").is_null() | (pl.col("next") > pl.col("start_ns"))
    )
    return pl.concat([begin, ends.select("start_ns", value=pl.lit(0.0))]).sort("start_ns", maintain_order=True)


def critical(lane: Lane) -> pl.DataFrame:
    """The critical path from its beginning to its end."""
    return lane.path.select(
        start_ns=pl.col("begin_ns") - lane.origin_ns,
        dur_ns="time_ns",
        cat=pl.lit("critical_path"),
        name=pl.format("{}: {}", "on", pl.col("op").fill_null("–")),
        tid=pl.lit(CRITICAL),
        args=pl.struct("on", "edge", "family"),
    )


def critical_kernels(lane: Lane, block: int) -> pl.DataFrame:
    """The kernels on the critical path, in order, where they are drawn."""
    run = lane.run
    rows = lane.path.filter(pl.col("on") == "gpu").drop_nulls("kernel")["kernel"].unique(maintain_order=True)
    drawn = rows.filter(rows.is_in(chosen(run)))
    alone = pl.repeat(ranks(run)[0], run.kernels.height, eager=True)
    rank = run.kernels["rank"] if "rank" in run.kernels.columns else alone
    start = pl.Series(lane.timeline.activity_start_ns - lane.origin_ns)
    end = pl.Series(lane.timeline.activity_end_ns - lane.origin_ns)
    return pl.DataFrame(
        {
            "pid": (block * rank + lane.place).gather(drawn),
            "tid": _threads(run).gather(drawn),
            "start_ns": start.gather(drawn),
            "dur_ns": (end - start).gather(drawn),
        }
    )


def _activities(lane: Lane, rank: int) -> pl.DataFrame:
    """The chosen steps' kernels of a rank as they are drawn."""
    run = lane.run
    table = run.kernels.with_columns(
        kernel=pl.int_range(pl.len(), dtype=pl.Int64),
        start_ns=lane.timeline.activity_start_ns - lane.origin_ns,
        dur_ns=lane.timeline.activity_end_ns - lane.timeline.activity_start_ns,
        time_us=lane.time_us,
        bound_us=lane.bound_us,
        thread=_threads(run),
    )[chosen(run)]
    return table.filter(pl.col("rank") == rank) if "rank" in table.columns else table


def _threads(run: Run) -> pl.Series:
    """The thread that each kernel is drawn on: its stream, those of a rank's second GPU behind the first one's."""
    first = pl.col("device").min()
    if "rank" in run.kernels.columns:
        first = first.over("rank")
    device = (pl.col("device") - first).fill_null(0)
    return run.kernels.select(pl.col("stream") + DEVICE * device).to_series()
