"""A run and its predictions to a report."""

from collections.abc import Iterator, Sequence

import polars as pl

import predictors
from tracekit import secrets
from tracekit.prediction import Prediction
from tracekit.replay.engine import measured as as_measured
from tracekit.replay.idle import END_OF_STEP, MEANING, Cause, attribute
from tracekit.replay.measure import StepTime
from tracekit.replay.run import Run
from tracekit.reporting.findings import FINDINGS
from tracekit.reporting.model import FamilyTime, Finding, IdleTime, KernelTime, Report, Source, TimeBar, WorkCoverage
from tracekit.workload.shares import share

# A graph that misses the measured step by more than this has waits that it can't explain.
TRUSTED_ERROR_PCT = 5.0

# Time within CUDA graphs that is kept rather than derived, from which on the reader should know.
MUCH_HIDDEN = 0.05

# Work taken from other kernels or from other ops than the one that launched the kernel.
INFERRED = ("repeat", "gradients")

TOLD_BY = {
    "slug": "name",
    "alias": "name",
    "default": "name",
    "file": "file",
    "properties": "SMs and memory",
}


def build(run: Run, targets: Sequence[Prediction] = ()) -> Report:
    """The report of a run.

    Args:
        run: The measured run.
        targets: Its predictions.
    """
    kernels = _in_steps(run, targets)
    return Report(
        source=_source(run),
        replay=run.replay,
        coverage=_coverage(kernels),
        breakdown=_breakdown(kernels, run.chosen.height),
        idle=tuple(_idle(run)),
        bars=tuple(_bars(run, targets)),
        kernels=_kernels(kernels, run.chosen.height, len(targets)),
        findings=_findings(run, kernels),
        warnings=tuple(_warnings(run)),
        targets=tuple(targets),
    )


def _in_steps(run: Run, targets: Sequence[Prediction]) -> pl.DataFrame:
    """The chosen steps' kernels with their bound on the source GPU (null if that isn't known) and on targets' times."""
    bounds = {"bound_us": pl.lit(None, pl.Float64), "limiter": pl.lit(None, pl.String)}
    if run.gpu is not None:
        alone = predictors.predict(run.kernels, run.gpu)
        bounds = {column: pl.lit(alone[column]) for column in bounds}
    predicted = {f"target {i}": target.kernels["time_us"] for i, target in enumerate(targets)}
    table = run.kernels.with_columns(time_us=pl.col("dur_ns") / 1e3, **bounds, **predicted)
    return table.filter(pl.col("step").is_in(run.chosen["step"].implode()))


def _source(run: Run) -> Source:
    return Source(
        trace=run.trace.source,
        gpu=run.gpu.slug if run.gpu else None,
        resolution=_resolution(run),
        rank=run.trace.rank,
        ranks=run.trace.world_size,
        steps=run.measured.steps,
        step_time_us=run.measured.step_time_us,
        kernel_time_us=run.measured.kernel_time_us,
        exposed_comm_us=run.measured.exposed_comm_us,
        idle_us=run.measured.idle_us,
        kernels=run.kernels.height,
        shapes_recorded=run.trace.shapes_recorded,
    )


def _resolution(run: Run) -> str:
    if run.source is None:
        return "not recorded"
    return f"{run.source.query or 'unnamed GPU'!r} → {run.source.gpu.slug} (by its {TOLD_BY[run.source.how]})"


def _coverage(kernels: pl.DataFrame) -> WorkCoverage:
    known = pl.col("work_from").is_not_null()
    work = share(kernels, "time_us", known)
    inferred = share(kernels, "time_us", pl.col("work_from").is_in(INFERRED))
    unknown = share(kernels, "time_us", ~known & (pl.col("family") == "other"))
    return WorkCoverage(work=work, inferred=inferred, family=100 - work - unknown, unknown=unknown)


def _breakdown(kernels: pl.DataFrame, steps: int) -> tuple[FamilyTime, ...]:
    whole = kernels["time_us"].sum() or 1.0
    rows = kernels.group_by("family").agg(time=pl.col("time_us").sum(), count=pl.len())
    return tuple(
        FamilyTime(family, time / steps, 100 * time / whole, count / steps)
        for family, time, count in rows.sort("time", "family", descending=[True, False]).iter_rows()
    )


def _idle(run: Run) -> Iterator[IdleTime]:
    idle = attribute(run.graph, as_measured(run.graph), run.kernels, run.steps, run.chosen)
    for cause, time_us, part in idle.by_cause().iter_rows():
        ops = idle.by_op(run.kernels, Cause(cause))
        op = None if ops.is_empty() or ops["op"][0] == END_OF_STEP else ops["op"][0]
        yield IdleTime(cause, MEANING[Cause(cause)], time_us, 100 * part, op)


def _bars(run: Run, targets: Sequence[Prediction]) -> Iterator[TimeBar]:
    yield _bar(run, "measured", run.measured, run.kernels["dur_ns"] / 1e3)
    for target in targets:
        yield _bar(run, target.gpu, target.step, target.kernels["time_us"])


def _bar(run: Run, label: str, step: StepTime, time_us: pl.Series) -> TimeBar:
    in_step = run.kernels["step"].is_in(run.chosen["step"].implode())
    rows = pl.DataFrame({"family": run.kernels["family"], "time": time_us}).filter(in_step)
    families = rows.group_by("family").agg(pl.col("time").sum()).sort("time", "family", descending=[True, False])
    whole = families["time"].sum() or 1.0
    parts = [(family, time / whole * step.kernel_time_us) for family, time in families.iter_rows()]
    return TimeBar(label, step.step_time_us, (*parts, ("idle", step.idle_us)))


def _kernels(kernels: pl.DataFrame, steps: int, targets: int) -> tuple[KernelTime, ...]:
    whole = kernels["time_us"].sum() or 1.0
    rows = (
        kernels.group_by("name", "op", "family", "dtype", "input_dims")
        .agg(
            *(pl.col(f"target {i}").sum() for i in range(targets)),
            count=pl.len(),
            time=pl.col("time_us").sum(),
            bound=pl.col("bound_us").sum(),
            limiter=pl.col("limiter").first(),
            bounded=pl.col("bound_us").is_not_null().all(),
            worked=pl.col("work_from").is_not_null().all(),
        )
        .sort("time", "name", "input_dims", descending=[True, False, False])
    )
    return tuple(
        KernelTime(
            name=row["name"],
            op=row["op"],
            family=row["family"],
            dtype=row["dtype"],
            shape=row["input_dims"],
            count=row["count"] / steps,
            time_us=row["time"] / steps,
            share=100 * row["time"] / whole,
            utilization=100 * row["bound"] / row["time"] if row["bounded"] and row["time"] else None,
            limiter=row["limiter"] if row["bounded"] else None,
            work_known=row["worked"],
            predicted_us=tuple(row[f"target {i}"] / steps for i in range(targets)),
        )
        for row in rows.iter_rows(named=True)
    )


def _findings(run: Run, kernels: pl.DataFrame) -> tuple[Finding, ...]:
    """Those that save most first; those without a saving last."""
    found = [finding for find in FINDINGS for finding in find(run, kernels)]
    return tuple(sorted(found, key=lambda finding: -(finding.saves_us or 0.0)))


def _warnings(run: Run) -> Iterator[str]:
    yield from run.job_warnings
    yield from run.trace.warnings
    yield from secrets.warnings(run.trace)
    if run.doubt:
        yield run.doubt
    if abs(run.replay.error_pct) > TRUSTED_ERROR_PCT:
        yield (
            f"the replay misses the measured step by {run.replay.error_pct:+.1f} %: the trace holds waits that no "
            "recorded or inferred dependency explains; its predictions are less sure than their intervals say"
        )
    if run.trace.world_size > 1:
        yield f"one of {run.trace.world_size} ranks: waiting for the others is part of the measured collectives"
    hidden = run.graph.hidden_ns / 1e3 / run.measured.step_time_us / run.steps.height
    if hidden > MUCH_HIDDEN:
        yield (
            f"{100 * hidden:.0f} % of the step lies between the kernels of CUDA graphs and is kept as it was: on a "
            "faster GPU the step may be shorter than predicted"
        )
    if run.graph.dropped:
        yield f"{run.graph.dropped} inferred dependencies contradict others and were left out"
