"""Build the report of a run and its predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tracekit.analysis.idle import attribute_idle_time, attribute_stream_idle_time
from tracekit.analysis.sensitivity import SpeedReplays
from tracekit.comm import Cluster
from tracekit.prediction import Prediction, Predictions, RefusedTarget
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.cost import UNPRICED, Prices
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.question import DEFAULT_QUESTION, Question
from tracekit.reporting import kernel_rows
from tracekit.reporting.findings import collect_findings
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.model import Report, TraceInfo
from tracekit.reporting.peak_losses import PRODUCTS
from tracekit.reporting.sections import (
    communication,
    groups,
    kernels,
    limits,
    recording,
    serving,
    step,
    timeline,
    warnings,
)
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.peak_use import AT_HFU, PeakUseSection, build_peak_use
from tracekit.reporting.sections.step import compute_measured_shares, compute_target_shares
from tracekit.reporting.sections.targets import build_decision, build_edit_savings, build_refused_steps
from tracekit.run import MeasuredRun
from tracekit.whatif import WhatIfResult

NO_BATCHES: Mapping[str, Sequence[Prediction]] = MappingProxyType({})


def build_report(
    run: MeasuredRun,
    targets: Sequence[Prediction] = (),
    *,
    command: str | None = None,
    what_if: WhatIfResult | None = None,
    after_edits: Sequence[Sequence[float | None]] = (),
    prices: Prices = UNPRICED,
    cluster: Cluster | None = None,
    question: Question = DEFAULT_QUESTION,
    batch: StepBatch | None = None,
    refused_targets: Sequence[RefusedTarget] = (),
    other_batches: Mapping[str, Sequence[Prediction]] = NO_BATCHES,
    with_timelines: bool = True,
) -> Report:
    """Build the report of a run, with the targets in order of rank.

    Args:
        run: The measured run.
        targets: Its predictions.
        command: The command line that requested the report.
        what_if: Edits of the run; the predictions include them.
        after_edits: For each edit, the steps on the targets with this edit and those before it.
        prices: Dollars for an hour of one GPU.
        cluster: Where the trace was recorded; ``None`` where that isn't known.
        question: What is to be decided between the targets.
        batch: Samples or tokens that the job processes in a measured step; ``None`` to infer them from the trace.
        refused_targets: Targets for which the step can't be predicted.
        other_batches: The predictions of a serving engine's batches of other kinds than the measured steps, by kind.
        with_timelines: Whether to draw the timelines, which only the page shows: 0.02 s a target.
    """
    on_source = kernel_rows.predict_on_source(run)
    price = prices.find(run.gpu, cluster)
    summary = step.build_source_summary(run, price, batch, step.estimate_energy(run, on_source), cluster)
    decision = build_decision(summary, targets, question, edited=what_if is not None, prices_date=prices.date)
    targets, after_edits = _order_targets(targets, after_edits, decision)
    places = {target.label: place for place, target in enumerate(targets)}
    other_batches = {kind: sorted(ones, key=lambda one: places[one.label]) for kind, ones in other_batches.items()}
    rows = kernel_rows.build_kernel_rows(run, targets, on_source)
    chosen = run.chosen_steps.height
    idle_time, stream_idle_time = attribute_stream_idle_time(run.program, run.measured_timeline)
    step_idle = idle_time.scale_to(run.measured_step)
    replayed = (compute_measured_shares(run), *map(compute_target_shares, targets))
    step_parts = step.build_step_parts(run.measured_step, replayed[0].families, step_idle)
    replays = SpeedReplays(run)
    kernel_times = kernels.build_kernel_times(run, rows, targets)
    idle = limits.build_idle_times(run, step_idle)
    bars, phases = step.build_time_bars(run, targets, replayed), groups.build_phase_times(rows, chosen)
    course = timeline.build_step_course(run)
    peak = build_peak_use(run, rows, targets, replayed, idle_time, replays, has_phases=len(phases) > 1)
    return Report(
        source=replace(summary, mfu=peak.get_share(None, PRODUCTS), hfu=peak.get_share(None, *AT_HFU)),
        decision=decision,
        serving=serving.build_serving_times(run, targets, other_batches),
        replay=step.build_replay_error(run),
        events=recording.build_event_ledger(run),
        coverage=groups.build_work_coverage(rows),
        breakdown=groups.build_family_times(rows, chosen),
        phases=phases,
        modules=groups.build_module_times(rows, chosen),
        idle=idle,
        streams=limits.build_stream_times(run, stream_idle_time),
        ranks=communication.build_rank_times(run),
        parts=step_parts,
        bars=bars,
        peak_use=peak.parts,
        peak_slices=peak.slices,
        kernels=kernel_times,
        over_bound=kernels.build_kernels_over_bound(rows, run.gpu),
        roofs=kernels.build_roofs(run, rows, targets),
        communication=communication.build_collective_times(rows, chosen, run.program.collectives),
        copies=communication.build_copy_times(rows, chosen, run.gpu),
        course=course,
        timelines=timeline.build_timelines(run, targets, kernel_times, course) if with_timelines else None,
        steps=step.build_measured_steps(run),
        critical=limits.build_critical_path(run),
        speeds=limits.build_speed_sensitivity(replays),
        accuracy=kernels.build_law_errors(rows, targets),
        what_if=build_edit_savings(what_if, after_edits, summary.step_time_us, peak.get_share(None, PRODUCTS)),
        provenance=recording.build_provenance(run, targets, command),
        findings=collect_findings(
            FindingContext(run, rows, step_idle, replays, step_parts, replayed, tuple(targets)),
        ),
        warnings=(
            *(one.to_message() for one in refused_targets),
            *prices.doubts,
            *warnings.build_warnings(run, idle_time, on_source),
        ),
        targets=tuple(_tell_peak(target, peak) for target in targets),
        refused=build_refused_steps(refused_targets),
    )


def _tell_peak(target: Prediction, peak: PeakUseSection) -> PredictedStep:
    mfu, hfu = (peak.get_share(target.label, *parts) for parts in ((PRODUCTS,), AT_HFU))
    return replace(target.to_plain(), mfu=mfu, hfu=hfu)


def build_info(run: MeasuredRun) -> TraceInfo:
    """Build the sections that say what a trace holds, in a fraction of a report's time and memory."""
    on_source = kernel_rows.predict_on_source(run)
    rows = kernel_rows.build_kernel_rows(run, (), on_source)
    idle_time = attribute_idle_time(run.program, run.measured_timeline)
    price = UNPRICED.find(run.gpu, None)
    return TraceInfo(
        source=step.build_source_summary(run, price, None, step.estimate_energy(run, on_source), None),
        replay=step.build_replay_error(run),
        events=recording.build_event_ledger(run),
        coverage=groups.build_work_coverage(rows),
        modules=groups.build_module_times(rows, run.chosen_steps.height),
        kernels=kernels.build_kernel_times(run, rows, ()),
        over_bound=kernels.build_kernels_over_bound(rows, run.gpu),
        warnings=tuple(warnings.build_warnings(run, idle_time, on_source)),
    )


def build_prediction_report(
    predicted: Predictions, command: str | None = None, *, with_timelines: bool = True
) -> Report:
    """Build the report of predictions and the run that they were made from; arguments as for :func:`build_report`."""
    return build_report(
        predicted.run,
        predicted.targets,
        command=command,
        what_if=predicted.what_if,
        after_edits=predicted.step_times_after_edits,
        prices=predicted.prices,
        cluster=predicted.cluster,
        question=predicted.question,
        batch=predicted.batch,
        refused_targets=predicted.refused,
        other_batches=predicted.other_batches,
        with_timelines=with_timelines,
    )


def _order_targets(
    targets: Sequence[Prediction], after_edits: Sequence[Sequence[float | None]], decision: Decision | None
) -> tuple[Sequence[Prediction], Sequence[Sequence[float | None]]]:
    """Bring the targets, and their steps after each edit, into the order of the decision."""
    if decision is None:
        return targets, after_edits
    places = {target.label: place for place, target in enumerate(targets)}
    order = [places[one.label] for one in decision.targets]
    return [targets[at] for at in order], [[steps[at] for at in order] for steps in after_edits]
