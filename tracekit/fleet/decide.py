"""Decide between the targets of a job of many ranks, with the sections of the report of a trace in one piece."""

from collections.abc import Sequence
from dataclasses import replace

from tracekit.comm import Cluster
from tracekit.fleet.job import RankedJob
from tracekit.prediction.cost import Prices
from tracekit.prediction.energy import StepEnergy, estimate_step_energy
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.question import Question
from tracekit.prediction.rounds import average_energies
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.step import SourceSummary, build_source_summary
from tracekit.reporting.sections.targets import build_decision


def decide(
    job: RankedJob,
    kernels: int,
    prices: Prices,
    cluster: Cluster | None,
    targets: Sequence[PredictedStep],
    question: Question,
) -> tuple[SourceSummary, Decision | None]:
    """Summarise the measured job, and decide between its targets.

    Args:
        job: The job.
        kernels: Number of kernels of all ranks.
        prices: Dollars for an hour of one GPU.
        cluster: The cluster of the traces; None if it is unknown.
        targets: The predictions.
        question: What is to be decided.
    """
    run, evidence = job.run, job.evidence
    price, gpus_per_rank = prices.find(run.gpu, cluster), job.gpus_per_rank
    energy = _estimate_energy(job)
    told = build_source_summary(run, price, evidence.facts.batch, energy, cluster, gpus_per_rank)
    summary = replace(
        told,
        kernels=kernels,
        shapes_recorded=evidence.facts.shapes_recorded,
        host_speed=evidence.host.speed if evidence.host else None,
        host_ops=evidence.host.ops if evidence.host else 0,
    )
    return summary, build_decision(summary, targets, question, prices_date=prices.date) if targets else None


def _estimate_energy(job: RankedJob) -> StepEnergy | None:
    """Estimate the energy of the measured step, as :func:`tracekit.reporting.sections.step.estimate_energy` does."""
    run, energies = job.run, [one.energies for one in job.evidence.ranks if one.energies is not None]
    if run.gpu is None or not energies:
        return None
    step = run.measured_step
    drawn = average_energies(energies, job.steps, step, run.gpu)
    return estimate_step_energy(drawn, step, (step.step_time_us, step.step_time_us), run.gpu, float(run.gpu.tdp_w))
