"""The launch queues and the copies of one step over its time."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.over_time import compute_means, list_queued
from tracekit.arrays import IN_ORDER, mark_equal, select_table
from tracekit.reporting.sections.copies import MEMSET
from tracekit.run import MeasuredRun

PARTS = 200
"""Equal parts of the step's time."""
MOST_STREAMS = 6
"""Streams that are followed, those with the longest queues; the others count together."""
OTHER_STREAMS = "other streams"


@dataclass(frozen=True, slots=True)
class TimeCourse:
    """A quantity in equal parts of a step's time.

    Attributes:
        name: What it is about: a stream or a kind of copies.
        values: Its mean in each part.
    """

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepCourse:
    """One step over its time, on one rank.

    Attributes:
        step: The chosen step whose time is nearest to the median.
        rank: The rank; ``None`` in a run of one.
        part_us: Length of a part.
        queues: Activities that were launched and hadn't begun, by stream.
        copies_gbps: Bandwidth of copies and memsets, by kind.
    """

    step: int
    rank: int | None
    part_us: float
    queues: tuple[TimeCourse, ...]
    copies_gbps: tuple[TimeCourse, ...]


def build_step_course(run: MeasuredRun) -> StepCourse | None:
    """Build the course of the middle step of the first rank; ``None`` without a step that takes time."""
    time_ns = pl.col("end_ns") - pl.col("start_ns")
    of_rank = run.chosen_steps.lazy().filter(pl.col("rank") == pl.col("rank").min())
    steps = of_rank.with_columns(time_ns=time_ns).filter(pl.col("time_ns") > 0)
    middle = steps.sort((pl.col("time_ns") - pl.col("time_ns").median()).abs(), "step").head(1).collect(engine=IN_ORDER)
    if middle.is_empty():
        return None
    row = middle.row(0, named=True)
    edges = np.linspace(row["start_ns"], row["end_ns"], PARTS + 1)
    return StepCourse(
        step=row["step"],
        rank=row["rank"] if len(run.ranks) > 1 else None,
        part_us=row["time_ns"] / PARTS / 1e3,
        queues=_follow_queues(run, row["rank"], edges),
        copies_gbps=_follow_copies(run, row["rank"], edges),
    )


def _follow_queues(run: MeasuredRun, rank: int, edges: np.ndarray) -> tuple[TimeCourse, ...]:
    queued = (
        list_queued(run.program)
        .lazy()
        .filter(pl.col("rank") == rank, pl.col("launched_ns") < edges[-1], pl.col("begun_ns") > edges[0])
    )
    waited = (pl.col("begun_ns") - pl.col("launched_ns")).sum()
    streams = queued.group_by("device", "stream").agg(waited=waited).sort("waited", "stream", descending=[True, False])
    alone = pl.len() <= MOST_STREAMS + 1
    named = streams.with_row_index("place").select(
        "device",
        "stream",
        "place",
        name=pl.when((pl.col("place") < MOST_STREAMS) | alone)
        .then(pl.format("GPU {} stream {}", "device", "stream"))
        .otherwise(pl.lit(OTHER_STREAMS)),
    )
    table = queued.join(named, on=["device", "stream"], nulls_equal=True).sort("place")
    return _follow(table.rename({"launched_ns": "begin", "begun_ns": "end"}).with_columns(rate=pl.lit(1.0)), edges)


def _follow_copies(run: MeasuredRun, rank: int, edges: np.ndarray) -> tuple[TimeCourse, ...]:
    copies = select_table(run.kernels, ~mark_equal(run.kernels["kind"], "kernel"))
    copied = copies.lazy().filter(pl.col("rank") == rank, pl.col("dur_ns") > 0)
    table = copied.select(
        name=pl.when(pl.col("kind") == MEMSET).then(pl.lit(MEMSET)).otherwise(pl.col("copy_kind")),
        begin="ts_ns",
        end=pl.col("ts_ns") + pl.col("dur_ns"),
        rate=pl.col("bytes") / pl.col("dur_ns"),
    ).drop_nulls()
    return _follow(table.filter(pl.col("begin") < edges[-1], pl.col("end") > edges[0]).sort("name"), edges)


def _follow(table: pl.LazyFrame, edges: np.ndarray) -> tuple[TimeCourse, ...]:
    courses = []
    for mine in (
        table.select("name", "begin", "end", "rate").collect(engine=IN_ORDER).partition_by("name", maintain_order=True)
    ):
        name, begin, end, rates = mine["name"][0], *(mine[column].to_numpy() for column in ("begin", "end", "rate"))
        means = compute_means(begin, end, rates, edges)
        courses.append(TimeCourse(str(name), tuple(round(max(float(mean), 0.0), 4) for mean in means)))
    return tuple(courses)
