"""Slices of each track of a timeline: one function per track; times in ns from the timeline's origin."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.idle_causes import IdleCause
from tracekit.arrays import Ints
from tracekit.graph.nodes import NONE
from tracekit.program import Program
from tracekit.replay.engine import Timeline


@dataclass(frozen=True, slots=True)
class Lane:
    """One timeline to draw.

    Attributes:
        index: 0 for the measured timeline; the targets follow in order.
        label: ``measured``, ``synthetic`` or ``captured``, as the report has it, or ``predicted on`` and the target.
        program: The program of this timeline; a predicted one also has the kernels that a layout inserts.
        timeline: Start and end of each node.
        critical_path: Pieces of the critical path in order.
        idle_causes: Each kernel that follows GPU idle time, with the ``cause`` of most of that time.
        origin_ns: The time to draw at 0.
        end_ns: The last time to draw, from there.
        bound_us: Roofline time of each kernel on this GPU; null where unknown.
    """

    index: int
    label: str
    gpu_name: str
    program: Program
    timeline: Timeline
    critical_path: pl.DataFrame
    idle_causes: pl.DataFrame
    origin_ns: int
    end_ns: int
    time_us: pl.Series
    bound_us: pl.Series


CRITICAL_PATH_TID, IDLE_TID = 1_000_001, 1_000_002
"""Thread ids of the critical path and of the idle time in a GPU's process, above those of its streams."""
TIDS_PER_DEVICE = 10_000
"""Offset between the thread ids of consecutive GPUs of one rank."""
TIDS_PER_OVERLAP = 10_000_000
"""Offset between the thread ids of kernels of one stream that overlap."""
KIND_CATEGORIES = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}
_ROLE = (
    pl.when(pl.col("kind") != "kernel")
    .then(pl.lit("copies"))
    .when(pl.col("family") == "collective")
    .then(pl.lit("communication"))
    .otherwise(pl.lit("compute"))
)
"""What a stream's activity is for."""


def select_chosen_rows(program: Program) -> Ints:
    """Return the kernel-table rows of the chosen steps."""
    return np.flatnonzero(program.is_in_chosen_steps.to_numpy())


def find_begin_ns(program: Program, timeline: Timeline, path: pl.DataFrame) -> int:
    """Return the start of a timeline's chosen steps: of its critical path, or of an earlier launch or kernel."""
    rows = select_chosen_rows(program)
    launchers = program.graph.nodes.launcher[rows]
    launched = timeline.start_ns[launchers[launchers != NONE]]
    return int(np.concatenate([path["begin_ns"].to_numpy(), launched, timeline.activity_start_ns[rows]]).min())


def find_end_ns(program: Program, timeline: Timeline, path: pl.DataFrame) -> int:
    """Return the end of a timeline's chosen steps: of its critical path, or of a later kernel."""
    ends = timeline.activity_end_ns[select_chosen_rows(program)]
    return int(np.concatenate([path["end_ns"].to_numpy(), ends]).max())


def find_main_causes(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return each kernel that follows GPU idle time, with the ``cause`` of most of that time.

    ``pieces`` are from :func:`tracekit.analysis.idle.attribute_idle_time`.
    """
    empty = pieces.filter(pl.col("cause") != IdleCause.RENDEZVOUS)
    causes = empty.drop_nulls("kernel").group_by("kernel", "cause").agg(pl.col("time_ns").sum())
    longest = causes.sort("time_ns", "cause", descending=[True, False])
    return longest.group_by("kernel", maintain_order=True).agg(pl.col("cause").first())


def list_ranks(program: Program) -> list[int]:
    """Return the ranks to draw."""
    return [rank.rank or 0 for rank in program.ranks]


def build_kernel_slices(lane: Lane, rank: int) -> pl.DataFrame:
    """Build one slice per kernel, on its stream."""
    table = _select_activities(lane, rank)
    share = 100 * pl.col("bound_us") / pl.col("time_us")
    return table.select(
        "start_ns",
        "dur_ns",
        cat=pl.col("kind").replace(KIND_CATEGORIES),
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
            device=pl.lit(lane.index),
            roofline_pct=share.round(1),
        ),
    )


def list_streams(lane: Lane, rank: int) -> list[tuple[int, str]]:
    """List the threads of a rank's kernels, with their titles: GPU, stream, and what it does most of the time."""
    table = _select_activities(lane, rank).drop_nulls("thread")
    roles = (
        table.with_columns(role=_ROLE)
        .group_by("device", "stream", "role")
        .agg(pl.col("dur_ns").sum())
        .sort("dur_ns", "role", descending=[True, False])
        .unique(["device", "stream"], keep="first", maintain_order=True)
    )
    gpu = pl.format("GPU {}", "device").fill_null("GPU") if table["device"].n_unique() > 1 else pl.lit("GPU")
    again = pl.when(pl.col("thread") >= TIDS_PER_OVERLAP).then(pl.lit(", overlapping")).otherwise(pl.lit(""))
    titles = (
        table.select("thread", "device", "stream")
        .unique()
        .join(roles, on=["device", "stream"], nulls_equal=True)
        .select("thread", title=pl.format("{} stream {} ({}{})", gpu, "stream", "role", again))
    )
    return titles.sort("thread").rows()


def find_launches(lane: Lane, threads: pl.DataFrame, rank: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Find the launches and their kernels, which arrows join: ``id`` (row of the kernel), ``tid``, ``at_ns``.

    The timeline is of one rank; the CPU threads have ``thread`` and ``lane``.
    """
    nodes = lane.program.graph.nodes
    drawn = _select_activities(lane, rank).with_columns(launcher=nodes.launcher[select_chosen_rows(lane.program)])
    launched = drawn.filter(pl.col("launcher") != NONE)
    launcher = launched["launcher"].to_numpy()
    called = lane.timeline.start_ns[launcher] - lane.origin_ns
    arrows = launched.with_columns(lane=nodes.lane[launcher], called=called).join(
        threads.drop_nulls("lane").select("lane", caller="thread"), on="lane", maintain_order="left"
    )
    return (
        arrows.select(tid="caller", at_ns="called", id="kernel"),
        arrows.select(tid="thread", id="kernel", at_ns="start_ns"),
    )


def build_idle_slices(lane: Lane, rank: int) -> pl.DataFrame:
    """Build one slice per GPU idle gap, named by the cause of most of the gap."""
    ordered = _select_activities(lane, rank).sort("start_ns")
    reached = (pl.col("start_ns") + pl.col("dur_ns")).cum_max().shift(1)
    gaps = ordered.select(
        "kernel", start_ns=reached, dur_ns=pl.col("start_ns") - reached, before=pl.coalesce("op", "name")
    )
    idle_gaps = gaps.filter(pl.col("dur_ns") > 0).join(lane.idle_causes, on="kernel", how="left", maintain_order="left")
    return idle_gaps.select(
        "start_ns",
        "dur_ns",
        cat=pl.lit("gpu_idle"),
        name=pl.col("cause").fill_null("unexplained"),
        tid=pl.lit(IDLE_TID),
        args=pl.struct("before"),
    )


def build_roofline_counter(lane: Lane, rank: int) -> pl.DataFrame:
    """Build the counter of the running kernel's utilization; 0 where none runs or the work is unknown."""
    table = _select_activities(lane, rank).sort("start_ns")
    begin = table.select("start_ns", value=(100 * pl.col("bound_us") / pl.col("time_us")).fill_null(0.0).fill_nan(0.0))
    until = (pl.col("start_ns") + pl.col("dur_ns")).cum_max()
    ends = table.select(start_ns=until, next=pl.col("start_ns").shift(-1)).filter(
        pl.col("next").is_null() | (pl.col("next") > pl.col("start_ns"))
    )
    return pl.concat([begin, ends.select("start_ns", value=pl.lit(0.0))]).sort("start_ns", maintain_order=True)


def build_critical_path_slices(lane: Lane) -> pl.DataFrame:
    """Build the slices of the critical path."""
    return lane.critical_path.select(
        start_ns=pl.col("begin_ns") - lane.origin_ns,
        dur_ns="time_ns",
        cat=pl.lit("critical_path"),
        name=pl.format("{}: {}", "on", pl.col("op").fill_null("–")),
        tid=pl.lit(CRITICAL_PATH_TID),
        args=pl.struct("on", "edge", "family"),
    )


def find_critical_kernels(lane: Lane) -> pl.DataFrame:
    """Return rank, thread and middle of the kernels on the critical path, in order: ``rank``, ``tid``, ``at_ns``."""
    program = lane.program
    rows = lane.critical_path.filter(pl.col("on") == "gpu").drop_nulls("kernel")["kernel"].unique(maintain_order=True)
    drawn = rows.filter(rows.is_in(select_chosen_rows(program)))
    start, end = lane.timeline.activity_start_ns, lane.timeline.activity_end_ns
    middle = pl.Series(start - lane.origin_ns + (end - start) // 2)
    return pl.DataFrame(
        {
            "rank": program.kernels["rank"].gather(drawn),
            "tid": _assign_threads(lane).gather(drawn),
            "at_ns": middle.gather(drawn),
        }
    )


def _select_activities(lane: Lane, rank: int) -> pl.DataFrame:
    """Return a rank's kernels of the chosen steps with the times and threads to draw."""
    program = lane.program
    table = program.kernels.with_columns(
        kernel=pl.int_range(pl.len(), dtype=pl.Int64),
        start_ns=lane.timeline.activity_start_ns - lane.origin_ns,
        dur_ns=lane.timeline.activity_end_ns - lane.timeline.activity_start_ns,
        time_us=lane.time_us,
        bound_us=lane.bound_us,
        thread=_assign_threads(lane),
    )[select_chosen_rows(program)]
    return table.filter(pl.col("rank") == rank)


def _assign_threads(lane: Lane) -> pl.Series:
    """Assign each kernel a thread: its stream; streams of a rank's later GPUs follow those of the first.

    Perfetto drops a slice that overlaps another one of its thread (google/perfetto#4280). A kernel that overlaps an
    earlier one of its stream is drawn on a further thread.
    """
    program = lane.program
    device = (pl.col("device") - pl.col("device").min().over("rank")).fill_null(0)
    stream = program.kernels.select("rank", thread=pl.col("stream") + TIDS_PER_DEVICE * device)
    table = stream.with_columns(start=lane.timeline.activity_start_ns, end=lane.timeline.activity_end_ns)
    while (overlaps := _find_overlaps(table)).any():
        table = table.with_columns(pl.col("thread") + pl.when(overlaps).then(TIDS_PER_OVERLAP).otherwise(0))
    return table["thread"]


def _find_overlaps(table: pl.DataFrame) -> pl.Series:
    """Return which kernels start before an earlier one of their thread has ended."""
    ordered = table.with_row_index("row").sort("rank", "thread", "start", "end")
    reached = pl.col("end").cum_max().shift(1).over("rank", "thread")
    return ordered.select("row", overlaps=(pl.col("start") < reached).fill_null(False)).sort("row")["overlaps"]
