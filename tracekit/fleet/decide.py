"""Decide between the targets of a job of many ranks, with the sections of the report of a trace in one piece."""

from collections.abc import Sequence
from dataclasses import replace

from tracekit.fleet.evidence import FleetEvidence
from tracekit.fleet.predicted_step import JobOnTargets
from tracekit.fleet.rounds import merge_gpus
from tracekit.prediction.energy import StepEnergy, average_kernel_energy, estimate_step_energy
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.question import Question
from tracekit.replay.step_time import JobSteps
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.step import SourceSummary, build_source_summary
from tracekit.reporting.sections.targets import build_decision
from tracekit.run import MeasuredRun


def decide(
    run: MeasuredRun,
    counts: tuple[int, int],
    evidence: FleetEvidence,
    job: JobOnTargets | None,
    targets: Sequence[PredictedStep],
    question: Question,
) -> tuple[SourceSummary, Decision | None]:
    """Summarise the measured job, and decide between its targets.

    Args:
        run: The measured run, of whose kernels only the collectives are here.
        counts: Number of all kernels, and of the GPUs that a rank drives.
        evidence: What all ranks tell.
        job: The job on its targets; None without targets.
        targets: The predictions.
        question: What is to be decided.
    """
    kernels, gpus_per_rank = counts
    price, cluster = (job.prices.find(run.gpu, job.source.shown), job.source.shown) if job else (None, None)
    energy = _estimate_energy(run, evidence)
    told = build_source_summary(run, price, evidence.facts.batch, energy, cluster, gpus_per_rank)
    summary = replace(
        told,
        kernels=kernels,
        shapes_recorded=evidence.facts.shapes_recorded,
        host_speed=evidence.host.speed if evidence.host else None,
        host_ops=evidence.host.ops if evidence.host else 0,
    )
    return summary, build_decision(summary, targets, question, prices_date=job.prices.date) if job else None


def _estimate_energy(run: MeasuredRun, evidence: FleetEvidence) -> StepEnergy | None:
    """Estimate the energy of the measured step, as :func:`tracekit.reporting.sections.step.estimate_energy` does."""
    energies = [one.energies for one in evidence.ranks if one.energies is not None]
    if run.gpu is None or not energies:
        return None
    steps, step = JobSteps(run.steps, run.chosen_steps), run.measured_step
    each = (merge_gpus(one) for one in zip(*energies, strict=True))
    drawn_mj, total_us, unknown_us = map(steps.compute_median_sum_us, each)
    drawn = average_kernel_energy(drawn_mj, total_us, unknown_us, step, run.gpu)
    return estimate_step_energy(drawn, step, (step.step_time_us, step.step_time_us), run.gpu, float(run.gpu.tdp_w))
