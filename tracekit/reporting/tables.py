"""The report's sections as tables: for spreadsheets, files and the headings' tooltips."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict

import polars as pl

from tracekit.prediction import Prediction
from tracekit.replay.causes import MEANING, Cause
from tracekit.reporting.model import Report
from tracekit.reporting.sections.source import Source
from tracekit.schema import Column, Table

STEP = Table(
    "step",
    "The measured step and the predicted ones.",
    (
        Column("gpu", pl.String, "The GPU."),
        Column("from", pl.String, "measured or predicted."),
        Column("step_time_us", pl.Float64, "Median step."),
        Column("low_us", pl.Float64, "Lower end of the step's 90 % interval."),
        Column("high_us", pl.Float64, "Upper end."),
        Column("speedup", pl.Float64, "Measured step time over predicted."),
        Column("speedup_per_sample", pl.Float64, "The same per sample, where the batch differs."),
        Column("kernel_time_us", pl.Float64, "Time in which the GPU is busy."),
        Column("exposed_comm_us", pl.Float64, "The part of it in which only collectives run."),
        Column("idle_us", pl.Float64, "Time in which the GPU is idle."),
        Column("modelled_pct", pl.Float64, "GPU time predicted from shapes."),
        Column("scaled_pct", pl.Float64, "GPU time scaled by the resource that limits such kernels."),
        Column("unknown_pct", pl.Float64, "GPU time kept as measured."),
        Column("dollars_per_1000_steps", pl.Float64, "Cost on all GPUs in use, where their price was given."),
        Column("dollars_per_1000_traced_steps", pl.Float64, "The same for as many samples as 1,000 traced steps have."),
        Column("samples", pl.Float64, "Samples or tokens of the job in a step, where the trace tells."),
        Column("unit", pl.String, "Whether these are samples or tokens."),
        Column("per_second", pl.Float64, "Throughput of the job in samples or tokens per second."),
        Column(
            "dollars_per_million",
            pl.Float64,
            "Cost of a million samples or tokens on all GPUs in use, where their price was given.",
        ),
        Column("fits_in_memory", pl.Boolean, "Whether a rank fits into memory; blank where that isn't known."),
    ),
)
TIME = Table(
    "time",
    "Where the step's time goes; kernels that overlap share the time they cover.",
    (
        Column("gpu", pl.String, "measured, or the target."),
        Column("part", pl.String, "Family of kernels, or idle."),
        Column("time_us", pl.Float64, "Time per step."),
        Column("share_pct", pl.Float64, "Of the step."),
    ),
)
FINDINGS = Table(
    "findings",
    "What limits the step.",
    (
        Column("kind", pl.String, "Short name."),
        Column("title", pl.String, "What it is."),
        Column("advice", pl.String, "What to try."),
        Column("saves_us", pl.Float64, "Step time that it would save, by replay."),
        Column("on", pl.String, "The target that it is about; blank: the measured run."),
    ),
)
EDITS = Table(
    "what if",
    "What-if edits, each on top of those before it; behind the columns listed, step_time_us on each target.",
    (
        Column("text", pl.String, "The edit as it was written."),
        Column("description", pl.String, "What it did."),
        Column("touched", pl.Int64, "How many kernels, calls or edges of the graph it changed."),
        Column("saving_us", pl.Float64, "By how much it shortens the measured step; negative for one that costs."),
        Column("step_time_us", pl.Float64, "The measured step with it and those before it."),
    ),
)
KERNEL_TIMES = Table(
    "kernels",
    "GPU time by kernel and shape; behind the columns listed, time_us, limiter and method on each target.",
    (
        Column("family", pl.String, "Kind of kernel."),
        Column("op", pl.String, "The CPU op that launches it."),
        Column("dtype", pl.String, "Precision asked for."),
        Column("shape", pl.String, "The op's input shapes, as recorded."),
        Column("name", pl.String, "The kernel's name."),
        Column("count", pl.Float64, "Launches per step."),
        Column("time_us", pl.Float64, "Summed time per step, measured."),
        Column("share", pl.Float64, "Part of all kernels' summed time, percent."),
        Column(
            "utilization", pl.Float64, "Share of the roofline: the least time that its work could take over its time."
        ),
        Column(
            "limiter",
            pl.String,
            "What keeps it from being faster: compute, memory, latency (too small to fill the GPU) or link.",
        ),
        Column("flops", pl.Float64, "Operations per step; a multiply-add is two."),
        Column("bytes", pl.Float64, "Compulsory memory traffic per step."),
    ),
)
PREDICTED = {
    "predicted": "Predicted time per step on this GPU, and how many times as fast that is.",
    "method": "How its time was predicted. transfer: its measurement, scaled by the model; law: the model alone; "
    "scaled: by the resource that limits such kernels; kept: as measured.",
}
"""Meaning of the columns that every target has."""
IDLE = Table(
    "idle",
    "Why the GPU was idle.",
    (
        Column("cause", pl.String, "The reason's name."),
        Column("meaning", pl.String, "What it means."),
        Column("time_us", pl.Float64, "Time in a mean step."),
        Column("share", pl.Float64, "Of all idle time, percent."),
        Column("op", pl.String, "The op whose launches ended most of it."),
        Column("line", pl.String, "The Python function that launched most of what ended it."),
    ),
)
STREAMS = Table(
    "streams",
    "Why each stream was idle; a row for each reason.",
    (
        Column("rank", pl.Int64, "The rank; blank in a run of one."),
        Column("device", pl.Int64, "The GPU in its process."),
        Column("stream", pl.Int64, "The stream."),
        Column("busy_us", pl.Float64, "Time in a mean step in which something of it worked."),
        Column("idle_us", pl.Float64, "The rest of the step; the reasons add up to it."),
        Column("cause", pl.String, "The reason's name."),
        Column("meaning", pl.String, "What it means."),
        Column("time_us", pl.Float64, "Time in a mean step."),
    ),
)
CRITICAL = Table(
    "critical path",
    "What the step would get shorter with.",
    (
        Column("on", pl.String, "gpu, host, latency or unexplained."),
        Column("op", pl.String, "The op that ran, was launched or was waited for."),
        Column("time_us", pl.Float64, "Time on the path in a mean step."),
        Column("share", pl.Float64, "Of the path, percent."),
    ),
)
MODULES = Table(
    "modules",
    "GPU time by module of the model; each with all modules inside it.",
    (
        Column("path", pl.String, "Path by class; numbers in braces: modules that are alike. Blank: no module."),
        Column("depth", pl.Int64, "How many modules it is inside of."),
        Column("modules", pl.Int64, "How many modules are meant."),
        Column("time_us", pl.Float64, "Summed time of their kernels per step, of modules inside too."),
        Column("share", pl.Float64, "Of all kernels' summed time, percent."),
        Column("backward_us", pl.Float64, "The part of it in the backward pass."),
        Column("own_us", pl.Float64, "The part of it that no module inside launched."),
        Column("kernels", pl.Float64, "Kernels per step."),
    ),
)
COLLECTIVES = Table(
    "communication",
    "Collectives by kind and ranks.",
    (
        Column("collective", pl.String, "Its name."),
        Column("ranks", pl.Int64, "How many take part."),
        Column("count", pl.Float64, "Launches per step."),
        Column("time_us", pl.Float64, "Summed time per step, without waiting for other ranks."),
        Column("wait_us", pl.Float64, "Waiting for other ranks, not in the time above."),
        Column("exposed_us", pl.Float64, "The part of it in which the GPU ran only collectives."),
        Column("bytes", pl.Float64, "Size of the buffers per step, as nccl-tests counts it."),
        Column("busbw_gbps", pl.Float64, "Bus bandwidth over that time, as nccl-tests counts it."),
    ),
)
RANKS = Table(
    "ranks",
    "Who waits for whom, in a mean step.",
    (
        Column("rank", pl.Int64, "Its number."),
        Column("busy_us", pl.Float64, "Its kernels' summed time, without waiting for other ranks."),
        Column("wait_us", pl.Float64, "How long its collectives waited for other ranks."),
        Column("last", pl.Float64, "Percent of its collectives to which it came last."),
        Column("held_up_us", pl.Float64, "By how much it was then later than all others, summed."),
        Column("clock_ahead_us", pl.Float64, "How far its clock was ahead of the first rank's."),
    ),
)
STEPS = Table(
    "steps",
    "The measured steps, one by one.",
    (
        Column("step", pl.Int64, "ProfilerStep number."),
        Column("time_us", pl.Float64, "From the end of the step before to its end."),
        Column("kernel_time_us", pl.Float64, "Time in which the GPU ran something of it."),
        Column("exposed_comm_us", pl.Float64, "The part of it in which only collectives ran."),
        Column("first", pl.Boolean, "The trace's first step, which starts with an empty queue."),
    ),
)
SPEEDS = Table(
    "sensitivity",
    "The step if GPU or CPU were faster.",
    (
        Column("gpu_speed", pl.Float64, "Multiple of the measured GPU's speed."),
        Column("host_speed", pl.Float64, "Multiple of the measured CPU's speed; infinite: no time at all."),
        Column("step_time_us", pl.Float64, "The step."),
    ),
)
LAWS = Table(
    "accuracy",
    "How far the model's laws were off on kernels longer than 20 µs that they were not fitted to.",
    (
        Column("law", pl.String, "Kernel family and precision; half: tensor-core formats from TF32 to 16 bits."),
        Column("share", pl.Float64, "GPU time of the measured step that it models, percent."),
        Column("gpus", pl.String, "GPUs that it was fitted to."),
        Column("held_out", pl.Float64, "Median error in percent on a GPU that was left out of the fit."),
        Column("worst", pl.Float64, "The same for the GPU that came out worst."),
    ),
)

TABLES = (
    STEP,
    TIME,
    FINDINGS,
    EDITS,
    KERNEL_TIMES,
    MODULES,
    IDLE,
    STREAMS,
    CRITICAL,
    COLLECTIVES,
    RANKS,
    STEPS,
    SPEEDS,
    LAWS,
)


def frames(report: Report) -> dict[str, pl.DataFrame]:
    """Every section that has rows, by its name."""
    tables: dict[Table, Iterable[dict[str, object]]] = {
        STEP: _step(report),
        TIME: _time(report),
        FINDINGS: map(asdict, report.findings),
        MODULES: map(asdict, report.modules),
        IDLE: map(asdict, report.idle),
        STREAMS: _streams(report),
        CRITICAL: map(asdict, report.critical.ops),
        COLLECTIVES: map(asdict, report.communication),
        RANKS: map(asdict, report.ranks),
        STEPS: map(asdict, report.steps),
        SPEEDS: (dict(zip(SPEEDS.dtypes, point, strict=True)) for point in report.speeds.points),
        LAWS: (asdict(law) | {"gpus": ", ".join(law.gpus)} for law in report.accuracy),
    }
    built = {table.name: _frame(table, list(rows)) for table, rows in tables.items()}
    built[EDITS.name] = _edits(report)
    built[KERNEL_TIMES.name] = kernels(report)
    return {name: frame for name, frame in built.items() if frame.height}


def kernels(report: Report) -> pl.DataFrame:
    """Every kernel, longest first: ``KERNEL_TIMES`` and each target's columns."""
    table = _frame(KERNEL_TIMES, [{c: getattr(row, c) for c in KERNEL_TIMES.dtypes} for row in report.kernels])
    columns = {
        f"{target.label} {column}": pl.Series([getattr(row, field)[i] for row in report.kernels], dtype=dtype)
        for i, target in enumerate(report.targets)
        for column, field, dtype in (
            ("time_us", "predicted_us", pl.Float64),
            ("limiter", "limiters", pl.String),
            ("method", "methods", pl.String),
        )
    }
    return table.with_columns(**columns)


def _edits(report: Report) -> pl.DataFrame:
    table = _frame(EDITS, list(map(asdict, report.what_if)))
    steps = {
        f"{target.label} step_time_us": pl.Series([row.predicted_us[i] for row in report.what_if], dtype=pl.Float64)
        for i, target in enumerate(report.targets)
    }
    return table.with_columns(**steps)


def _frame(table: Table, rows: list[dict[str, object]]) -> pl.DataFrame:
    return table.frame({column: [row[column] for row in rows] for column in table.dtypes})


def _step(report: Report) -> Iterator[dict[str, object]]:
    source = report.source
    times = ("step_time_us", "kernel_time_us", "exposed_comm_us", "idle_us")
    nothing = dict.fromkeys(STEP.dtypes)
    paid = {"dollars_per_1000_steps": source.dollars_per_1000_steps, **_done(source)}
    yield nothing | {"gpu": source.gpu, "from": "measured"} | {time: getattr(source, time) for time in times} | paid
    for target in report.targets:
        coverage = {f"{part}_pct": share for part, share in asdict(target.coverage).items()}
        interval = {"low_us": target.low_us, "high_us": target.high_us}
        faster = {"speedup": target.speedup, "speedup_per_sample": target.speedup_per_sample}
        costs = {"dollars_per_1000_steps": target.dollars, "dollars_per_1000_traced_steps": target.dollars_as_traced}
        judged = {**faster, **costs, **_done(target), "fits_in_memory": target.memory.fits}
        predicted = {"gpu": target.label, "from": "predicted"} | {time: getattr(target.step, time) for time in times}
        yield nothing | predicted | interval | coverage | judged


def _done(step: Source | Prediction) -> dict[str, object]:
    """What gets done in a step, and in a second of such steps."""
    size, unit = (step.batch.size, step.batch.unit) if step.batch else (None, None)
    done = {"per_second": step.per_second, "dollars_per_million": step.dollars_per_million}
    return {"samples": size, "unit": unit, **done}


def _streams(report: Report) -> Iterator[dict[str, object]]:
    for stream in report.streams:
        for cause, time_us in stream.causes:
            yield asdict(stream) | {"cause": cause, "meaning": MEANING[Cause(cause)], "time_us": time_us}


def _time(report: Report) -> Iterator[dict[str, object]]:
    for bar in report.bars:
        for part, time_us in bar.parts:
            share_pct = 100 * time_us / bar.step_time_us if bar.step_time_us else None
            yield {"gpu": bar.label, "part": part, "time_us": time_us, "share_pct": share_pct}
