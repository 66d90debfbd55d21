"""One step over its time: launch queues, copies, and a picture of its streams and critical path, here and there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.critical_path import compute_critical_path, compute_measured_path
from tracekit.analysis.over_time import compute_means, list_queued, rasterize
from tracekit.arrays import IN_ORDER, mark_equal, select_table
from tracekit.prediction import Prediction
from tracekit.program import Program
from tracekit.replay.engine import Timeline
from tracekit.reporting.sections.communication import MEMSET
from tracekit.reporting.sections.kernels import KERNEL_KEYS, KernelTime
from tracekit.reporting.sections.step import label_times
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


MAX_LANES = 4
"""Streams with a lane of their own, those with most work; the others share one."""
MAX_BLOCKS = 1200
"""Blocks of all timelines together."""
MAX_BLOCKS_EACH = 400
MAX_TARGETS = 8
COLUMNS = (480, 360, 240, 160, 120, 80, 60)
"""Parts of the step's time, the first with few enough blocks."""


@dataclass(frozen=True, slots=True)
class TimelineBlock:
    """Parts of the time in which one kernel takes most of a stream.

    Attributes:
        begin: First part.
        length: Number of parts.
        quarters: How much of them the stream is busy, 1 to 4.
        family: Family of the kernel.
        kernel: Place of the kernel in the report's kernels; ``None`` for one that only the target has.
    """

    begin: int
    length: int
    quarters: int
    family: str
    kernel: int | None


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """One stream."""

    name: str
    blocks: tuple[TimelineBlock, ...]


@dataclass(frozen=True, slots=True)
class PathPart:
    """Parts of the time that the critical path spends at one place: ``gpu``, ``host``, ``latency``, ``unexplained``."""

    begin: int
    length: int
    on: str


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """The step as measured, or as replayed with the times of a target.

    Attributes:
        label: ``measured`` (of a captured program ``captured``), or the target's name.
        time_us: Length of this step.
        columns: Number of equal parts of it.
        path: The critical path.
        lanes: Streams that do something, those that work longest in the measured step first.
    """

    label: str
    time_us: float
    columns: int
    path: tuple[PathPart, ...]
    lanes: tuple[TimelineLane, ...]


@dataclass(frozen=True, slots=True)
class TimelineSection:
    """One step on one rank over time.

    Attributes:
        step: The chosen step whose time is nearest to the median.
        rank: The rank; ``None`` in a run of one.
        measured: As measured.
        predicted: On the targets, best first.
    """

    step: int
    rank: int | None
    measured: StepTimeline
    predicted: tuple[StepTimeline, ...]


def build_timelines(
    run: MeasuredRun, targets: Sequence[Prediction], kernels: Sequence[KernelTime], course: StepCourse | None
) -> TimelineSection | None:
    """Build the timelines of the middle step; ``None`` without a step that takes time.

    The predictions are best first, and those after the first eight are left out; ``course`` says which step and rank.
    """
    if course is None:
        return None
    drawn = targets[:MAX_TARGETS]
    painter = _Painter(
        run=run,
        places=_number_kernels(run, kernels),
        course=course,
        streams=_choose_streams(run, course),
        max_blocks=min(MAX_BLOCKS // (1 + len(drawn)), MAX_BLOCKS_EACH),
    )
    measured = painter.draw(label_times(run.trace), run.program, run.measured_timeline)
    if measured is None:
        return None
    predicted = (painter.draw_target(target) for target in drawn)
    return TimelineSection(course.step, course.rank, measured, tuple(one for one in predicted if one))


def _choose_streams(run: MeasuredRun, course: StepCourse) -> pl.DataFrame:
    """Return the streams with a lane of their own, which is their row: those that work longest in the measured step."""
    rank = pl.lit(True) if course.rank is None else pl.col("rank") == course.rank
    inside = run.kernels.lazy().filter(pl.col("step") == course.step, rank)
    streams = inside.group_by("device", "stream").agg(busy=pl.col("dur_ns").sum())
    ordered = streams.sort("busy", "stream", descending=[True, False]).collect(engine=IN_ORDER)[["device", "stream"]]
    return (ordered if len(ordered) <= MAX_LANES + 1 else ordered.head(MAX_LANES)).with_row_index("lane")


def _number_kernels(run: MeasuredRun, kernels: Sequence[KernelTime]) -> pl.Series:
    """Return the place in the report's kernels of each row of the kernel table."""
    columns = {
        key: [getattr(kernel, "shape" if key == "input_dims" else key) for kernel in kernels] for key in KERNEL_KEYS
    }
    schema = {key: run.kernels.schema[key] for key in KERNEL_KEYS}
    numbers = pl.DataFrame(columns, schema=schema, strict=False).with_row_index("place")
    found = run.kernels.select(KERNEL_KEYS).join(
        numbers, on=KERNEL_KEYS, how="left", nulls_equal=True, maintain_order="left"
    )
    return found["place"].cast(pl.Int64)


@dataclass(frozen=True)
class _Painter:
    """Draws one step of a run as it was measured and on targets.

    Attributes:
        places: Place in the report's kernels of each kernel.
        course: Says which step and rank.
        streams: Streams with a lane of their own.
    """

    run: MeasuredRun
    places: pl.Series
    course: StepCourse
    streams: pl.DataFrame
    max_blocks: int

    def draw_target(self, target: Prediction) -> StepTimeline | None:
        program = target.program.replace_tables(chosen_steps=self.run.chosen_steps)
        return self.draw(target.label, program, target.replay_timeline())

    def draw(self, label: str, program: Program, timeline: Timeline) -> StepTimeline | None:
        """Draw a timeline of a program; ``None`` if the step has no time there."""
        rank = int(program.steps["rank"].to_numpy().min()) if self.course.rank is None else self.course.rank
        is_drawn = mark_equal(program.steps["step"], self.course.step) & mark_equal(program.steps["rank"], rank)
        spans = program.step_timer.compute_step_spans(timeline)
        if not (is_drawn & spans.has_duration).any():
            return None
        row = int(np.argmax(is_drawn))
        begin_ns, end_ns = int(spans.previous_end_ns[row]), int(spans.end_ns[row])
        activities = self._list_activities(program, timeline).filter(
            pl.col("rank") == rank, pl.col("end_ns") > begin_ns, pl.col("begin_ns") < end_ns
        )
        for columns in COLUMNS:
            blocks = rasterize(activities, begin_ns, end_ns, columns)
            if blocks.height <= self.max_blocks:
                break
        is_measured = program is self.run.program
        found = compute_measured_path(program) if is_measured else compute_critical_path(program, timeline)
        segments = found.segments.select("begin_ns", "end_ns", lane=pl.lit(0), key="on")
        path = rasterize(segments, begin_ns, end_ns, columns)[["begin", "length", "key"]]
        return StepTimeline(
            label=label,
            time_us=(end_ns - begin_ns) / 1e3,
            columns=columns,
            path=tuple(PathPart(*row) for row in path.iter_rows()),
            lanes=tuple(self._build_lanes(blocks)),
        )

    def _list_activities(self, program: Program, timeline: Timeline) -> pl.DataFrame:
        """List the GPU's activities with their times; the trace's kernels come first in every program."""
        added = program.kernels.height - self.places.len()
        places = self.places.extend_constant(None, added) if added else self.places
        kernels = program.kernels.lazy().join(
            self.streams.lazy(), on=["device", "stream"], how="left", nulls_equal=True, maintain_order="left"
        )
        return kernels.select(
            "rank",
            pl.col("lane").fill_null(self.streams.height),
            key=pl.struct(family="family", place=places),
            begin_ns=pl.Series(timeline.activity_start_ns),
            end_ns=pl.Series(timeline.activity_end_ns),
        ).collect(engine=IN_ORDER)

    def _build_lanes(self, blocks: pl.DataFrame) -> Iterator[TimelineLane]:
        names = self.streams.select(pl.format("GPU {} stream {}", "device", "stream")).to_series().to_list()
        drawn: dict[int, list[TimelineBlock]] = {}
        for lane, begin, length, quarters, kernel in blocks.iter_rows():
            drawn.setdefault(lane, []).append(TimelineBlock(begin, length, quarters, kernel["family"], kernel["place"]))
        for lane, name in enumerate([*names, OTHER_STREAMS]):
            if lane in drawn:
                yield TimelineLane(name, tuple(drawn[lane]))
