"""The report's sections as tables: for spreadsheets, files and the tooltips of column headings."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields

import polars as pl

from predictors.tiling import TILE_COLUMNS
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.note_order import compute_effect_us
from tracekit.reporting.answer_table import ANSWER, list_answers
from tracekit.reporting.figure_columns import list_figure_columns, spread_figure
from tracekit.reporting.findings.finding import Finding
from tracekit.reporting.model import Report
from tracekit.reporting.sections.figure import Figure
from tracekit.reporting.sections.source import SourceSummary
from tracekit.schema import LEDGER, TableColumn, TableSchema

STEP = TableSchema(
    "step",
    "The measured step and the predicted ones.",
    (
        TableColumn("gpu", pl.String, "The GPU."),
        TableColumn("from", pl.String, "measured, captured or predicted."),
        TableColumn("step_time_us", pl.Float64, "Median step."),
        TableColumn("low_us", pl.Float64, "Lower end of the step's 90 % interval."),
        TableColumn("high_us", pl.Float64, "Upper end."),
        TableColumn("speedup", pl.Float64, "Measured step time over predicted; blank of a program that never ran."),
        TableColumn("speedup_per_sample", pl.Float64, "The same per sample, where the batch differs."),
        TableColumn("kernel_time_us", pl.Float64, "Time in which the GPU is busy."),
        TableColumn("exposed_comm_us", pl.Float64, "The part of it in which only collectives run."),
        TableColumn("idle_us", pl.Float64, "Time in which the GPU is idle."),
        TableColumn("modelled_pct", pl.Float64, "Kernel time predicted from shapes, percent."),
        TableColumn("scaled_pct", pl.Float64, "Kernel time scaled by the resource that limits such kernels."),
        TableColumn("unknown_pct", pl.Float64, "Kernel time kept as measured."),
        TableColumn("inferred_pct", pl.Float64, "Kernel time of GEMMs inferred from tiles, grids and measured times."),
        TableColumn("dollars_per_1000_steps", pl.Float64, "Cost on all GPUs in use, where their price was given."),
        TableColumn(
            "dollars_per_1000_traced_steps", pl.Float64, "The same for as many samples as 1,000 traced steps have."
        ),
        TableColumn("samples", pl.Float64, "Samples or tokens of the job in a step, where the trace tells."),
        TableColumn("unit", pl.String, "Whether these are samples or tokens."),
        TableColumn("per_second", pl.Float64, "Throughput of the job in samples or tokens per second."),
        TableColumn(
            "dollars_per_million",
            pl.Float64,
            "Cost of a million samples or tokens on all GPUs in use, where their price was given.",
        ),
        TableColumn("energy_j", pl.Float64, "Estimated energy of the step on one GPU, in joules."),
        TableColumn("energy_low_j", pl.Float64, "Lower end of its 90 % interval."),
        TableColumn("energy_high_j", pl.Float64, "Upper end."),
        TableColumn("power_w", pl.Float64, "Mean power of one GPU's board, in watts."),
        TableColumn("joules_per_unit", pl.Float64, "Joules for a sample or token on all GPUs in use."),
        TableColumn("fits_in_memory", pl.Boolean, "Whether a rank fits into memory; blank where that isn't known."),
    ),
)
TIME = TableSchema(
    "time",
    "Where the step's time goes; kernels that overlap share the time they cover.",
    (
        TableColumn("gpu", pl.String, "measured, or the target."),
        TableColumn("part", pl.String, "Family of kernels, or idle."),
        TableColumn("time_us", pl.Float64, "Time per step."),
        TableColumn("share_pct", pl.Float64, "Of the step."),
    ),
)
SERVING = TableSchema(
    "serving",
    "Batches of a serving engine by kind, measured and on each target.",
    (
        TableColumn("kind", pl.String, "prefill, decode, mixed, or the engine's own word."),
        TableColumn("batches", pl.Int64, "How many batches the median is over."),
        TableColumn("prompts", pl.Float64, "Prompts in a measured batch."),
        TableColumn("sequences", pl.Float64, "Running sequences in a measured batch."),
        TableColumn("tokens", pl.Float64, "Tokens of a measured batch."),
        TableColumn("gpu", pl.String, "measured, or the target."),
        TableColumn("gpus", pl.Int64, "GPUs that serve together."),
        *(
            column
            for name, meaning in (
                ("batch_us", "Time of a batch"),
                ("first_token_us", "Time to first token, without queueing"),
                ("output_token_us", "Time per output token"),
                ("tokens_per_s", "Tokens a second"),
                ("tokens_per_s_per_gpu", "Tokens a second and GPU"),
                ("tokens_per_s_per_user", "Output tokens of one sequence a second"),
            )
            for column in list_figure_columns(name, meaning)
        ),
    ),
)
FINDINGS = TableSchema(
    "findings",
    "What limits the step.",
    (
        TableColumn("code", pl.String, "Stable name."),
        TableColumn("title", pl.String, "What it is."),
        TableColumn("advice", pl.String, "What to try."),
        TableColumn("saves_us", pl.Float64, "Step time that it would save, by replay."),
        TableColumn("on", pl.String, "The target that it is about; blank: the measured run."),
    ),
)
NOTES = TableSchema(
    "notes",
    "What the predictions assume, and their limits, what matters most first.",
    (
        TableColumn("target", pl.String, "The GPU or cluster."),
        TableColumn("code", pl.String, "Stable name."),
        TableColumn("text", pl.String, "What it says."),
        TableColumn("effect_us", pl.Float64, "By how much it may change the step, where that can be worked out."),
    ),
)
EDITS = TableSchema(
    "what if",
    "What-if edits, each on top of those before it; behind the columns listed, GPU.step_time_us of each target.",
    (
        TableColumn("text", pl.String, "The edit as it was written."),
        TableColumn("description", pl.String, "What it did."),
        TableColumn("touched", pl.Int64, "How many kernels, calls or edges of the graph it changed."),
        TableColumn("saving_us", pl.Float64, "By how much it shortens the measured step; negative for one that costs."),
        TableColumn("step_time_us", pl.Float64, "The measured step with it and those before it."),
    ),
)
KERNEL_TIMES = TableSchema(
    "kernels",
    "Kernel time by kernel and shape; behind the columns listed, GPU.time_us, limiter, method, tiles of each target.",
    (
        TableColumn("family", pl.String, "Kind of kernel."),
        TableColumn("op", pl.String, "The CPU op that launches it."),
        TableColumn("dtype", pl.String, "Precision asked for."),
        TableColumn("shape", pl.String, "The op's input shapes, as recorded."),
        TableColumn("name", pl.String, "The kernel's name."),
        TableColumn("count", pl.Float64, "Launches per step."),
        TableColumn("time_us", pl.Float64, "Summed time per step, measured."),
        TableColumn("share", pl.Float64, "Part of all kernels' summed time, percent."),
        TableColumn(
            "utilization", pl.Float64, "Share of the roofline: the least time that its work could take over its time."
        ),
        TableColumn(
            "limiter",
            pl.String,
            "What keeps it from being faster: compute, memory, latency (too small to fill the GPU) or link.",
        ),
        TableColumn("flops", pl.Float64, "Operations per step; a multiply-add is two."),
        TableColumn("bytes", pl.Float64, "Compulsory memory traffic per step."),
        TableColumn("tflops", pl.Float64, "Operations over its time, in 1e12 a second."),
        TableColumn(
            "tbps", pl.Float64, "Memory traffic over its time, in 1e12 bytes a second; of copies, what they copy."
        ),
        TableColumn("tile_m", pl.Int64, "Rows of a tile, of attention queries of a block, as the name tells."),
        TableColumn("tile_n", pl.Int64, "Columns of the tile, of attention keys."),
        TableColumn("split_k", pl.Int64, "Parts that the k of a product is cut into."),
        TableColumn("waves", pl.Float64, "Blocks over SMs: 1.2 are two rounds, the second of a fifth of the SMs."),
    ),
)
TARGET_COLUMN_MEANINGS = {
    "predicted": "Predicted time per step on this GPU, and how many times as fast that is.",
    "method": "How its time was predicted. transfer: its measurement, scaled by the model; law: the model alone; "
    "scaled: by the resource that limits such kernels; kept: as measured.",
}
"""Meaning of the columns that every target has."""
IDLE = TableSchema(
    "idle",
    "Why the GPU was idle.",
    (
        TableColumn("cause", pl.String, "The reason's name."),
        TableColumn("meaning", pl.String, "What it means."),
        TableColumn("time_us", pl.Float64, "Time in the median step."),
        TableColumn("share", pl.Float64, "Of the step, percent."),
        TableColumn("op", pl.String, "The op whose launches ended most of it."),
        TableColumn("line", pl.String, "The Python function that launched most of what ended it."),
    ),
)
STREAMS = TableSchema(
    "streams",
    "Why each stream was idle; a row for each reason.",
    (
        TableColumn("rank", pl.Int64, "The rank; blank in a run of one."),
        TableColumn("device", pl.Int64, "The GPU in its process."),
        TableColumn("stream", pl.Int64, "The stream."),
        TableColumn("busy_us", pl.Float64, "Time in a mean step in which something of it worked."),
        TableColumn("idle_us", pl.Float64, "The rest of the step; the reasons add up to it."),
        TableColumn("queued", pl.Float64, "How many of its activities were launched and hadn't begun, on average."),
        TableColumn("most_queued", pl.Int64, "The most of them at a time."),
        TableColumn("cause", pl.String, "The reason's name."),
        TableColumn("meaning", pl.String, "What it means."),
        TableColumn("time_us", pl.Float64, "Time in a mean step."),
    ),
)
CRITICAL = TableSchema(
    "critical path",
    "What the step would get shorter with.",
    (
        TableColumn("on", pl.String, "gpu, communication, host, latency or unexplained."),
        TableColumn("op", pl.String, "The op that ran, was launched or was waited for."),
        TableColumn("time_us", pl.Float64, "Time on the path in a mean step."),
        TableColumn("share", pl.Float64, "Of the path, percent."),
    ),
)
MODULES = TableSchema(
    "modules",
    "Kernel time by module of the model; each with all modules inside it.",
    (
        TableColumn("path", pl.String, "Path by class; numbers in braces: modules that are alike. Blank: no module."),
        TableColumn("depth", pl.Int64, "How many modules it is inside of."),
        TableColumn("modules", pl.Int64, "How many modules are meant."),
        TableColumn("time_us", pl.Float64, "Summed time of their kernels per step, of modules inside too."),
        TableColumn("share", pl.Float64, "Of all kernels' summed time, percent."),
        TableColumn("backward_us", pl.Float64, "The part of it in the backward pass."),
        TableColumn("own_us", pl.Float64, "The part of it that no module inside launched."),
        TableColumn("kernels", pl.Float64, "Kernels per step."),
    ),
)
COLLECTIVES = TableSchema(
    "communication",
    "Collectives by kind and ranks.",
    (
        TableColumn("collective", pl.String, "Its name."),
        TableColumn("ranks", pl.Int64, "How many take part."),
        TableColumn("count", pl.Float64, "Launches per step."),
        TableColumn("time_us", pl.Float64, "Summed time per step, without waiting for other ranks."),
        TableColumn("wait_us", pl.Float64, "Waiting for other ranks, not in the time above."),
        TableColumn("exposed_us", pl.Float64, "The part of it in which the GPU ran only collectives."),
        TableColumn("bytes", pl.Float64, "Size of the buffers per step, as nccl-tests counts it."),
        TableColumn("busbw_gbps", pl.Float64, "Bus bandwidth over that time, as nccl-tests counts it."),
        TableColumn("skew_us", pl.Float64, "From the first rank's start to the last one's, in a mean launch."),
    ),
)
COPIES = TableSchema(
    "copies",
    "Copies by direction and kind of memory, and memsets.",
    (
        TableColumn("kind", pl.String, "HtoD, DtoH, DtoD, PtoP or memset."),
        TableColumn("memories", pl.String, "Both ends, where the copy's name says them."),
        TableColumn("count", pl.Float64, "Number per step."),
        TableColumn("time_us", pl.Float64, "Summed time per step."),
        TableColumn("bytes", pl.Float64, "Bytes per step."),
        TableColumn("gbps", pl.Float64, "Bytes over time, in 1e9 a second."),
        TableColumn("low_gbps", pl.Float64, "For a tenth of the time it is at most so high."),
        TableColumn("high_gbps", pl.Float64, "For a tenth of the time it is at least so high."),
        TableColumn(
            "limit_gbps",
            pl.Float64,
            "What the datasheet gives: PCI Express to and from the host, the link between GPUs, half of the memory's "
            "bandwidth inside it.",
        ),
    ),
)
RANKS = TableSchema(
    "ranks",
    "Who waits for whom, in a mean step.",
    (
        TableColumn("rank", pl.Int64, "Its number."),
        TableColumn("busy_us", pl.Float64, "Its kernels' summed time, without waiting for other ranks."),
        TableColumn("wait_us", pl.Float64, "How long its collectives waited for other ranks."),
        TableColumn("last", pl.Float64, "Percent of its collectives to which it came last."),
        TableColumn("held_up_us", pl.Float64, "By how much it was then later than all others, summed."),
        TableColumn("clock_ahead_us", pl.Float64, "How far its clock was ahead of the first rank's."),
    ),
)
STEPS = TableSchema(
    "steps",
    "The measured steps, one by one.",
    (
        TableColumn("step", pl.Int64, "ProfilerStep number."),
        TableColumn("time_us", pl.Float64, "From the end of the step before to its end."),
        TableColumn("kernel_time_us", pl.Float64, "Time in which the GPU ran something of it."),
        TableColumn("exposed_comm_us", pl.Float64, "The part of it in which only collectives ran."),
        TableColumn("first", pl.Boolean, "The trace's first step, which starts with an empty queue."),
    ),
)
SPEEDS = TableSchema(
    "sensitivity",
    "The step if GPU or CPU were faster.",
    (
        TableColumn("gpu_speed", pl.Float64, "Multiple of the measured GPU's speed."),
        TableColumn("host_speed", pl.Float64, "Multiple of the measured CPU's speed; blank: no time at all."),
        TableColumn("step_time_us", pl.Float64, "The step."),
    ),
)
LAWS = TableSchema(
    "accuracy",
    "How far the model's laws were off on kernels longer than 20 µs that they were not fitted to.",
    (
        TableColumn("law", pl.String, "Kernel family and precision; half: tensor-core formats from TF32 to 16 bits."),
        TableColumn("share", pl.Float64, "Kernel time of the measured step that it models, percent."),
        TableColumn("gpus", pl.String, "GPUs that it was fitted to."),
        TableColumn("held_out", pl.Float64, "Median error in percent on a GPU that was left out of the fit."),
        TableColumn("worst", pl.Float64, "The same for the GPU that came out worst."),
    ),
)

TABLES = (
    ANSWER,
    STEP,
    SERVING,
    TIME,
    FINDINGS,
    NOTES,
    EDITS,
    KERNEL_TIMES,
    MODULES,
    IDLE,
    STREAMS,
    CRITICAL,
    COLLECTIVES,
    COPIES,
    RANKS,
    STEPS,
    SPEEDS,
    LAWS,
    LEDGER,
)


def build_frames(report: Report) -> dict[str, pl.DataFrame]:
    """Build every section that has rows, by name."""
    tables: dict[TableSchema, Iterable[dict[str, object]]] = {
        ANSWER: list_answers(report.decision),
        STEP: _iter_step_rows(report),
        SERVING: _iter_serving_rows(report),
        TIME: _iter_time_rows(report),
        FINDINGS: map(_build_finding_row, report.findings),
        NOTES: _iter_note_rows(report),
        MODULES: map(asdict, report.modules),
        IDLE: (asdict(row) | {"meaning": str(row.meaning)} for row in report.idle),
        STREAMS: _iter_stream_rows(report),
        CRITICAL: map(asdict, report.critical.ops),
        COLLECTIVES: map(asdict, report.communication),
        COPIES: map(asdict, report.copies),
        RANKS: map(asdict, report.ranks),
        STEPS: map(asdict, report.steps),
        SPEEDS: (dict(zip(SPEEDS.dtypes, point, strict=True)) for point in report.speeds.points),
        LAWS: (asdict(law) | {"gpus": ", ".join(law.gpus)} for law in report.accuracy),
        LEDGER: map(asdict, report.events.groups),
    }
    built = {table.name: _make_frame(table, list(rows)) for table, rows in tables.items()}
    built[EDITS.name] = _build_edit_frame(report)
    built[KERNEL_TIMES.name] = build_kernel_frame(report)
    return {name: frame for name, frame in built.items() if frame.height}


def name_target_column(label: str, column: str) -> str:
    """Name a column that every target has; without a blank, so that queries needn't quote it."""
    return f"{label}.{column}"


def build_answer_frame(report: Report) -> pl.DataFrame:
    """Build the table of the measured step and the predicted ones."""
    return _make_frame(STEP, [*_iter_step_rows(report)])


def build_kernel_frame(report: Report) -> pl.DataFrame:
    """Build the table of all kernels, longest first: ``KERNEL_TIMES`` and each target's columns."""
    measured = [
        {name: getattr(row.tiles if name in TILE_COLUMNS else row, name, None) for name in KERNEL_TIMES.dtypes}
        for row in report.kernels
    ]
    table = _make_frame(KERNEL_TIMES, measured)
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
    table = _make_frame(EDITS, [asdict(row) | {"description": str(row.description)} for row in report.what_if])
    steps = {
        name_target_column(target.label, "step_time_us"): pl.Series(
            [row.predicted_us[i] for row in report.what_if], dtype=pl.Float64
        )
        for i, target in enumerate(report.targets)
    }
    return table.with_columns(**steps)


def _make_frame(table: TableSchema, rows: list[dict[str, object]]) -> pl.DataFrame:
    return table.build_frame({column: [row[column] for row in rows] for column in table.dtypes})


def _iter_step_rows(report: Report) -> Iterator[dict[str, object]]:
    source = report.source
    times = ("step_time_us", "kernel_time_us", "exposed_comm_us", "idle_us")
    nothing = dict.fromkeys(STEP.dtypes)
    paid = {"dollars_per_1000_steps": source.dollars_per_1000_steps, **_describe_throughput(source)}
    if report.has_baseline:
        yield (
            nothing | {"gpu": source.gpu, "from": source.label} | {time: getattr(source, time) for time in times} | paid
        )
    for target in report.targets:
        coverage = {f"{part}_pct": share for part, share in asdict(target.coverage).items()}
        interval = {"low_us": target.low_us, "high_us": target.high_us}
        faster = {"speedup": target.speedup, "speedup_per_sample": target.speedup_per_sample}
        costs = {
            "dollars_per_1000_steps": target.dollars_per_1000_steps,
            "dollars_per_1000_traced_steps": target.dollars_per_1000_traced_steps,
        }
        judged = {**faster, **costs, **_describe_throughput(target), "fits_in_memory": target.memory.fits}
        predicted = {"gpu": target.label, "from": "predicted"} | {time: getattr(target.step, time) for time in times}
        yield nothing | predicted | interval | coverage | judged


def _describe_throughput(step: SourceSummary | PredictedStep) -> dict[str, object]:
    """Describe the samples or tokens of a step, and the throughput at that step time."""
    size, unit = (step.batch.size, step.batch.unit) if step.batch else (None, None)
    done = {"per_second": step.per_second, "dollars_per_million": step.dollars_per_million}
    return {"samples": size, "unit": unit, **done, **_describe_energy(step)}


def _describe_energy(step: SourceSummary | PredictedStep) -> dict[str, object]:
    """Describe what a step draws; nothing where the GPU isn't known."""
    energy = step.energy
    if energy is None:
        return {}
    ends = {"energy_low_j": energy.low_joules, "energy_high_j": energy.high_joules}
    return {"energy_j": energy.joules, **ends, "power_w": energy.power_w, "joules_per_unit": step.joules_per_unit}


def _iter_serving_rows(report: Report) -> Iterator[dict[str, object]]:
    nothing = dict.fromkeys(SERVING.dtypes)
    for served in report.serving.kinds if report.serving else ():
        counts = {name: getattr(served, name) for name in ("kind", "batches", "prompts", "sequences", "tokens")}
        for speed in served.speeds:
            row = nothing | counts | {"gpu": speed.label, "gpus": speed.gpus}
            for field in fields(speed):
                if isinstance(figure := getattr(speed, field.name), Figure):
                    row |= spread_figure(field.name, figure)
            yield row


def _iter_stream_rows(report: Report) -> Iterator[dict[str, object]]:
    for stream in report.streams:
        for cause, time_us in stream.causes:
            yield asdict(stream) | {
                "cause": cause,
                "meaning": str(CAUSE_MEANINGS[IdleCause(cause)]),
                "time_us": time_us,
            }


def _iter_time_rows(report: Report) -> Iterator[dict[str, object]]:
    for bar in report.compared_bars:
        for part, time_us in bar.parts:
            share_pct = 100 * time_us / bar.step_time_us if bar.step_time_us else None
            yield {"gpu": bar.label, "part": part, "time_us": time_us, "share_pct": share_pct}


def _iter_note_rows(report: Report) -> Iterator[dict[str, object]]:
    for target in report.targets:
        for note in target.notes:
            effect_us = compute_effect_us(note, target.step.step_time_us)
            yield {"target": target.label, "code": note.code, "text": str(note), "effect_us": effect_us}


def _build_finding_row(finding: Finding) -> dict[str, object]:
    names = ("code", "on", "title", "advice", "saves_us")
    return {name: getattr(finding, name) for name in names}
