"""The report's sections as tables for spreadsheets, files and pages; columns are declared beside their figures."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl

from predictors.model import TILE_COLUMNS
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.messages import Message
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.note_order import compute_effect_us
from tracekit.reporting.columns import Column, Table
from tracekit.reporting.model import Report, TargetsReport
from tracekit.reporting.sections.communication import CollectiveTime, CopyTime, RankTime
from tracekit.reporting.sections.decision import TargetDecision
from tracekit.reporting.sections.groups import ModuleTime, PhaseTime
from tracekit.reporting.sections.kernels import KernelOverBound, KernelTime, LawError, Tiles
from tracekit.reporting.sections.limits import CriticalOp, IdleTime, StreamTime
from tracekit.reporting.sections.peak_use import PeakSlice, PeakUse
from tracekit.reporting.sections.serving import ServedBatches, ServingSpeed
from tracekit.reporting.sections.step import MeasuredStep, SourceSummary, StepPart
from tracekit.reporting.sections.targets import EditSaving
from tracekit.reporting.step_row import StepRow
from tracekit.schema import LEDGER, TableSchema


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part of a step."""

    gpu: Annotated[str, Column("measured, or the target.")]
    part: Annotated[str, Column("Family of kernels, or idle.")]
    time_us: Annotated[float, Column("Time per step.")]
    share_pct: Annotated[float | None, Column("Of the step.")]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One finding."""

    code: Annotated[str, Column("Stable name.")]
    title: Annotated[str, Column("What it is.")]
    advice: Annotated[str, Column("What to try.")]
    saves_us: Annotated[float | None, Column("Step time that it would save, by replay.")]
    on: Annotated[str | None, Column("The target that it is about; blank: the measured run.")]


@dataclass(frozen=True, slots=True)
class NoteRow:
    """One note on a prediction."""

    target: Annotated[str, Column("The GPU or cluster.")]
    code: Annotated[str, Column("Stable name.")]
    text: Annotated[str, Column("What it says.")]
    effect_us: Annotated[float | None, Column("By how much it may change the step, where that can be worked out.")]


@dataclass(frozen=True, slots=True)
class StreamCause:
    """Why a stream was idle."""

    cause: Annotated[str, Column("The reason's name.")]
    meaning: Annotated[Message, Column("What it means.")]
    time_us: Annotated[float, Column("Time in a mean step.")]


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """The step with a GPU and a CPU of other speeds."""

    gpu_speed: Annotated[float, Column("Multiple of the measured GPU's speed.")]
    host_speed: Annotated[float | None, Column("Multiple of the measured CPU's speed; blank: no time at all.")]
    step_time_us: Annotated[float, Column("The step.")]


ANSWER = Table(
    "answer",
    "The targets compared with the trace for equal work, best first.",
    (TargetDecision,),
    ("rank", "label", "gpus", "rented", "price", "speedup", "dollars", "break_even", "run_hours", "run_dollars",
     "joules", "fits", "sentence"),
)  # fmt: skip
STEP = Table("step", "The measured step and the predicted ones.", (StepRow,))
SERVING = Table(
    "serving",
    "Batches of a serving engine by kind, measured and on each target.",
    (ServedBatches, ServingSpeed),
    ("kind", "batches", "prompts", "sequences", "tokens", "label", "gpus", "batch_us", "first_token_us",
     "output_token_us", "tokens_per_s", "tokens_per_s_per_gpu", "tokens_per_s_per_user"),
)  # fmt: skip
TIME = Table("time", "Where the step's time goes; kernels that overlap share the time they cover.", (PartRow,))
FINDINGS = Table("findings", "What limits the step.", (FindingRow,))
NOTES = Table("notes", "What the predictions assume, and their limits, what matters most first.", (NoteRow,))
EDITS = Table(
    "what if",
    "What-if edits, each on top of those before it; behind the columns listed, GPU.step_time_us of each target.",
    (EditSaving,),
)
KERNEL_TIMES = Table(
    "kernels",
    "Kernel time by kernel and shape; behind the columns listed, GPU.time_us, limiter, method, tiles of each target.",
    (KernelTime, Tiles),
    ("family", "op", "dtype", "shape", "name", "count", "time_us", "share", "utilization", "limiter", "flops", "bytes",
     "tflops", "tbps", "tile_m", "tile_n", "split_k", "waves"),
)  # fmt: skip
TARGET_COLUMN_MEANINGS = {
    "predicted": "Predicted time per step on this GPU, and how many times as fast that is.",
    "method": "How its time was predicted. transfer: its measurement, scaled by the model; law: the model alone; "
    "scaled: by the resource that limits such kernels; kept: as measured.",
}
"""Meaning of the columns that every target has."""
PARTS = Table("parts", "Whose the time of the measured step is; all parts add up to it.", (StepPart,))
PHASES = Table("phases", "Kernel time by phase of training.", (PhaseTime,))
OVER_BOUND = Table("faster than bound", "Kernels that are faster than their work allows.", (KernelOverBound,))
MODULES = Table("modules", "Kernel time by module of the model; each with all modules inside it.", (ModuleTime,))
PEAK = Table("peak use", "What share of the GPU's peak the step uses, and where the rest goes.", (PeakUse,))
PEAK_SLICES = Table("peak use by phase", "What share of the peak each phase and module uses.", (PeakSlice,))
IDLE = Table("idle", "Why the GPU was idle.", (IdleTime,))
STREAMS = Table("streams", "Why each stream was idle; a row for each reason.", (StreamTime, StreamCause))
CRITICAL = Table("critical path", "What the step would get shorter with.", (CriticalOp,))
COLLECTIVES = Table("communication", "Collectives by kind and ranks.", (CollectiveTime,))
COPIES = Table("copies", "Copies by direction and kind of memory, and memsets.", (CopyTime,))
RANKS = Table("ranks", "Who waits for whom, in a mean step.", (RankTime,))
STEPS = Table("steps", "The measured steps, one by one.", (MeasuredStep,))
SPEEDS = Table("sensitivity", "The step if GPU or CPU were faster.", (SpeedRow,))
LAWS = Table(
    "accuracy",
    "How far the model's laws were off on kernels longer than 20 µs that they were not fitted to.",
    (LawError,),
)

TABLES: tuple[Table, ...] = (
    *(
        ANSWER,
        STEP,
        SERVING,
        TIME,
        FINDINGS,
        NOTES,
        EDITS,
        KERNEL_TIMES,
        OVER_BOUND,
        PARTS,
        PHASES,
        MODULES,
        PEAK,
        PEAK_SLICES,
        IDLE,
    ),
    *(STREAMS, CRITICAL, COLLECTIVES, COPIES, RANKS, STEPS, SPEEDS, LAWS),
)
SCHEMAS: dict[str, TableSchema] = {table.name: table.schema for table in TABLES} | {LEDGER.name: LEDGER}
"""The columns of each sheet by its name."""


def list_rows(report: Report, table: Table) -> Iterable[Any]:
    """List the rows of one of the tables."""
    serving, decision, speeds = report.serving, report.decision, report.speeds
    rows: dict[str, Iterable[Any]] = {
        ANSWER.name: decision.targets if decision else (),
        STEP.name: _list_steps(report),
        SERVING.name: ((served, speed) for served in (serving.kinds if serving else ()) for speed in served.speeds),
        TIME.name: _list_parts(report),
        FINDINGS.name: (FindingRow(one.code, one.title, one.advice, one.saves_us, one.on) for one in report.findings),
        NOTES.name: _list_notes(report),
        EDITS.name: report.what_if,
        KERNEL_TIMES.name: ((kernel, kernel.tiles) for kernel in report.kernels),
        OVER_BOUND.name: report.over_bound,
        PARTS.name: report.parts,
        PHASES.name: report.phases,
        MODULES.name: report.modules,
        PEAK.name: report.peak_use,
        PEAK_SLICES.name: report.peak_slices,
        IDLE.name: report.idle,
        STREAMS.name: _list_stream_causes(report),
        CRITICAL.name: report.critical.ops,
        COLLECTIVES.name: report.communication,
        COPIES.name: report.copies,
        RANKS.name: report.ranks,
        STEPS.name: report.steps,
        SPEEDS.name: (SpeedRow(*point) for point in speeds.points),
        LAWS.name: report.accuracy,
    }
    return rows[table.name]


def build_frames(report: Report) -> dict[str, pl.DataFrame]:
    """Build every section that has rows, by name."""
    built = {table.name: table.build_frame(list_rows(report, table)) for table in TABLES}
    built[KERNEL_TIMES.name] = build_kernel_frame(report)
    built[EDITS.name] = _build_edit_frame(report)
    groups = report.events.groups
    built[LEDGER.name] = LEDGER.build_frame({name: [getattr(row, name) for row in groups] for name in LEDGER.dtypes})
    return {name: frame for name, frame in built.items() if frame.height}


def name_target_column(label: str, column: str) -> str:
    """Name a column that every target has; without a blank, so that queries needn't quote it."""
    return f"{label}.{column}"


def build_answer_frame(report: TargetsReport) -> pl.DataFrame:
    """Build the table of the measured step and the predicted ones."""
    return STEP.build_frame(_list_steps(report))


def show_step_figure(step: SourceSummary | PredictedStep, name: str) -> str:
    """Format a figure of a step for people."""
    return STEP.show(name, getattr(StepRow(step), name))


def list_step_figures(report: TargetsReport) -> list[str]:
    """List the figures with a heading that are known of the measured step or of a predicted one."""
    rows = [StepRow(report.source), *map(StepRow, report.targets)]
    return [name for name in STEP.shown if any(getattr(row, name) is not None for row in rows)]


def build_note_frame(report: TargetsReport) -> pl.DataFrame:
    """Build the table of the notes on the predictions."""
    return NOTES.build_frame(_list_notes(report))


def build_kernel_frame(report: Report) -> pl.DataFrame:
    """Build the table of all kernels, longest first: ``KERNEL_TIMES`` and each target's columns."""
    table = KERNEL_TIMES.build_frame(list_rows(report, KERNEL_TIMES))
    columns = {
        name_target_column(target.label, column): pl.Series(
            [getattr(row, field)[i] for row in report.kernels], dtype=dtype
        )
        for i, target in enumerate(report.targets)
        for column, field, dtype in (
            ("time_us", "predicted_us", pl.Float64),
            ("limiter", "limiters", pl.String),
            ("method", "methods", pl.String),
        )
    }
    tiles = {
        name_target_column(target.label, name): pl.Series(
            [getattr(row.predicted_tiles[i], name, None) for row in report.kernels], dtype=dtype
        )
        for i, target in enumerate(report.targets)
        for name, dtype in TILE_COLUMNS.items()
    }
    return table.with_columns(**columns, **tiles)


def _build_edit_frame(report: Report) -> pl.DataFrame:
    steps = {
        name_target_column(target.label, "step_time_us"): pl.Series(
            [row.predicted_us[i] for row in report.what_if], dtype=pl.Float64
        )
        for i, target in enumerate(report.targets)
    }
    return EDITS.build_frame(report.what_if).with_columns(**steps)


def _list_steps(report: TargetsReport) -> Iterator[StepRow]:
    if report.has_baseline:
        yield StepRow(report.source)
    yield from map(StepRow, report.targets)


def _list_parts(report: Report) -> Iterator[PartRow]:
    for bar in report.compared_bars:
        for part, time_us in bar.parts:
            yield PartRow(bar.label, part, time_us, 100 * time_us / bar.step_time_us if bar.step_time_us else None)


def _list_notes(report: TargetsReport) -> Iterator[NoteRow]:
    for target in report.targets:
        for note in target.notes:
            yield NoteRow(target.label, note.code, str(note), compute_effect_us(note, target.step.step_time_us))


def _list_stream_causes(report: Report) -> Iterator[tuple[StreamTime, StreamCause]]:
    for stream in report.streams:
        for cause, time_us in stream.causes:
            yield stream, StreamCause(cause, CAUSE_MEANINGS[IdleCause(cause)], time_us)
