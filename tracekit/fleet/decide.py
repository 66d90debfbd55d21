"""Decide between the targets of a job of many ranks, with the sections of the report of a trace in one piece."""

from collections.abc import Sequence
from dataclasses import replace

from tracekit.fleet.predicted_step import JobOnTargets
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.question import Question
from tracekit.reporting.sections.decide import build_decision
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.source import SourceSummary, build_source_summary
from tracekit.run import MeasuredRun


def decide(
    run: MeasuredRun,
    counts: tuple[int, int],
    job: JobOnTargets | None,
    targets: Sequence[PredictedStep],
    question: Question,
) -> tuple[SourceSummary, Decision | None]:
    """Summarise the measured job, and decide between its targets.

    Args:
        run: The measured run, of whose kernels only the collectives are here.
        counts: Number of all kernels, and of the GPUs that a rank drives.
        job: The job on its targets; None without targets.
        targets: The predictions.
        question: What is to be decided.
    """
    kernels, gpus_per_rank = counts
    if job is None:
        return replace(build_source_summary(run, gpus_per_rank=gpus_per_rank), kernels=kernels), None
    price = job.prices.find(job.run.gpu, job.source.shown)
    told = build_source_summary(job.run, price, job.facts.batch, cluster=job.source.shown, gpus_per_rank=gpus_per_rank)
    summary = replace(told, kernels=kernels, shapes_recorded=job.facts.shapes_recorded)
    return summary, build_decision(summary, targets, question, prices_date=job.prices.date)
