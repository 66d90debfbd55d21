"""Published throughputs of one job on several GPUs, from shapes and from the times on another GPU.

No trace of these jobs is public, so `published_jobs` rebuilds them: the kernels of the same models, captured by running
them on tensors without data, read by tracekit as from a trace. *From shapes*: the throughput by the kernels' shapes and
the datasheet, with the width of a stack that nobody told. *From another GPU*: the kernels' times on one GPU, scaled so
that they give its published throughput, are predicted for the other, as those of a trace would be.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from math import exp, hypot, log
from statistics import median
from typing import NamedTuple

import polars as pl

from predictors import load_gpu
from predictors.hardware import derive_hardware
from predictors.transfer import classify_kinship
from tests.validation.published_jobs import kernels as kernel_times
from tests.validation.published_jobs.jobs import PublishedJob, read_published_jobs, tabulate_job_kernels
from tests.validation.study import format_errors, format_table, list_sources, write_figures
from tracekit.models.stacks import UNKNOWN_HALF_WIDTH
from tracekit.prediction.track_record import TRACK_RECORD_FILE

INPUTS = ()
GAP_SOURCE, GAP_TARGET = "a100-sxm-80gb", "h100-sxm"
INFERENCE_SOURCE = "timm"
"""Source of throughputs that nothing trains."""
MAX_GAP_TOKENS = 4096
"""Longer sequences ran by other kernels on the two GPUs."""


@dataclass(frozen=True)
class Outcome:
    """A prediction beside a published throughput, in samples a second."""

    row: PublishedJob
    predicted: float
    low: float
    high: float

    @property
    def error_pct(self) -> float:
        """Return the error of the throughput."""
        return 100 * (self.predicted / self.row.samples_per_s - 1)

    @property
    def is_inside(self) -> bool:
        """Return whether the interval holds the published throughput."""
        return self.low <= self.row.samples_per_s <= self.high


class GapRow(NamedTuple):
    """A job's time that its kernels' shapes leave open; errors in percent, above zero is too fast.

    Attributes:
        source: Of the throughputs.
        job: Its name.
        gap_pct: Part of the step that the kernels' times by their shapes leave open.
        speedup: Of the published throughputs.
        carried_pct: Error of the prediction, which takes a part of the kernels' slowness for the source GPU's own.
        same_slowness_pct: Error with kernels that fall as short of their shapes on the target.
        same_gap_pct: Error with the open time as long on the target.
    """

    source: str
    job: str
    gap_pct: float
    speedup: float
    carried_pct: float
    same_slowness_pct: float
    same_gap_pct: float


def run() -> str:
    """Return the errors by source and GPU, and the jobs' time that shapes leave open."""
    alone = predict_all_from_shapes()
    tables = ["# Published throughputs on several GPUs\n", "## From shapes\n", tabulate(alone.values())]
    for source, outcomes in predict_all_from_other_gpus().items():
        tables += [f"## From another GPU: {source}\n", tabulate(outcome for _, outcome in outcomes)]
    headings = ("source", "job", "open", "speed-up", "as predicted", "as slow there", "as long there")
    gaps = list(list_gaps(alone))
    return "\n".join(
        (
            *tables,
            f"## What shapes leave open, {GAP_SOURCE} to {GAP_TARGET}\n",
            "*open*: part of the step that the kernels' times by their shapes leave open. Then the error of the "
            "throughput as predicted, with kernels as slow against their shapes on the target, and with the open time "
            "as long there.\n",
            format_table(headings, map(format_gap, (*gaps, *compute_medians(gaps)))),
            list_sources("job_throughputs"),
        )
    )


def update() -> None:
    """Write the errors between GPUs that aren't siblings, which notes of predictions cite."""
    by_gpu: dict[str, list[float]] = defaultdict(list)
    for outcomes in predict_all_from_other_gpus().values():
        for source, outcome in outcomes:
            if not are_siblings(source.gpu, outcome.row.gpu):
                by_gpu[load_gpu(outcome.row.gpu).slug].append(outcome.error_pct)
    jobs = {}
    for gpu, errors in sorted(by_gpu.items()):
        worst = max(errors, key=abs)
        jobs[gpu] = {"pairs": len(errors), "median": round(median(errors), 1), "worst": round(worst, 1)}
    write_figures(
        TRACK_RECORD_FILE,
        "# Errors of published throughputs carried to a GPU from others that aren't its siblings, percent, by\n"
        "# python -m tests.validation whole_jobs/throughputs --update; above zero is predicted too fast.\n",
        {"jobs": jobs},
    )


@cache
def predict_all_from_shapes() -> dict[PublishedJob, Outcome]:
    """Return each published job's prediction without any measured time."""
    return {row: predict_from_shapes(row) for row in read_published_jobs()}


@cache
def predict_all_from_other_gpus() -> dict[str, list[tuple[PublishedJob, Outcome]]]:
    """Return for each source the predictions from each GPU to each other that it measured the same job on."""
    alone = predict_all_from_shapes()
    found: dict[str, list[tuple[PublishedJob, Outcome]]] = defaultdict(list)
    for (source, _), rows in group_by_job(alone).items():
        found[source] += [(one, predict_from_other_gpu(one, other, alone)) for one, other in permutations(rows, 2)]
    return {source: outcomes for source, outcomes in found.items() if outcomes}


def group_by_job(rows: Iterable[PublishedJob]) -> dict[tuple[str, object], list[PublishedJob]]:
    """Return the rows of each source and job."""
    groups: dict[tuple[str, object], list[PublishedJob]] = defaultdict(list)
    for row in rows:
        groups[row.source, row.job].append(row)
    return groups


def predict_from_shapes(row: PublishedJob) -> Outcome:
    """Predict a job without any measured time; what trains a model isn't told, as without ``--stack``."""
    kernels = tabulate_job_kernels(row.job, row.batch)
    alone = sum_outcome(row, kernels, kernel_times.predict_from_shapes(kernels, row.gpu))
    if row.source.startswith(INFERENCE_SOURCE):
        return alone
    low, high = (log(end / alone.predicted) for end in (alone.low, alone.high))
    below, above = (
        alone.predicted * exp(side * hypot(end, UNKNOWN_HALF_WIDTH)) for side, end in ((-1, low), (1, high))
    )
    return replace(alone, low=below, high=above)


def predict_from_other_gpu(
    source: PublishedJob, target: PublishedJob, alone: Mapping[PublishedJob, Outcome]
) -> Outcome:
    """Predict a job from another GPU, at the target's batch, with kernels as slow against their shapes as there."""
    kernels = tabulate_job_kernels(target.job, target.batch)
    slowness = alone[source].predicted / source.samples_per_s
    return sum_outcome(target, kernels, kernel_times.predict_carried(kernels, source.gpu, target.gpu, slowness))


def sum_outcome(row: PublishedJob, kernels: pl.DataFrame, times: pl.DataFrame) -> Outcome:
    """Return the throughput that the kernels' times give."""
    step_us, low_us, high_us = kernel_times.sum_kernel_times(kernels, times)
    return Outcome(row, *(1e6 * row.batch / us for us in (step_us, high_us, low_us)))


def are_siblings(*gpus: str) -> bool:
    """Return whether two GPUs run the same kernels."""
    return classify_kinship(*(derive_hardware(load_gpu(gpu)) for gpu in gpus)) == "sibling"


def tabulate(outcomes: Iterable[Outcome]) -> str:
    """Return the table of some predictions."""
    headings = ("source", "GPU", "predictions", "error, median", "absolute, median", "worst", "in interval")
    return format_table(headings, summarize(outcomes))


def summarize(outcomes: Iterable[Outcome]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each source and GPU, and one of all."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for one in outcomes:
        groups[one.row.source, load_gpu(one.row.gpu).name].append(one)
        groups["all", ""].append(one)
    for key, some in sorted(groups.items(), key=lambda group: group[0][0] == "all"):
        inside = sum(one.is_inside for one in some)
        yield *key, str(len(some)), *format_errors([one.error_pct for one in some]), str(inside)


def list_gaps(alone: Mapping[PublishedJob, Outcome]) -> Iterator[GapRow]:
    """Yield a row for each job that was measured on both GPUs."""
    for rows in group_by_job(row for row in alone if get_tokens(row) <= MAX_GAP_TOKENS).values():
        by_gpu = {row.gpu: row for row in rows}
        if by_gpu.keys() >= {GAP_SOURCE, GAP_TARGET}:
            yield compute_gap(by_gpu[GAP_SOURCE], by_gpu[GAP_TARGET], alone)


def compute_gap(source: PublishedJob, target: PublishedJob, alone: Mapping[PublishedJob, Outcome]) -> GapRow:
    """Compute the row of one job."""
    step, known, target_step, target_known = (
        row.batch / rate for row in (source, target) for rate in (row.samples_per_s, alone[row].predicted)
    )
    return GapRow(
        source.source,
        f"{source.job.model}, {source.job.step}, {source.job.precision}",
        100 * (1 - known / step),
        target.samples_per_s / source.samples_per_s,
        predict_from_other_gpu(source, target, alone).error_pct,
        100 * (target_step / (target_known * step / known) - 1),
        100 * (target_step / (target_known + step - known) - 1),
    )


def compute_medians(gaps: Sequence[GapRow]) -> Iterator[GapRow]:
    """Yield a row of medians for each source."""
    for source in dict.fromkeys(gap.source for gap in gaps):
        columns = list(zip(*(gap[2:] for gap in gaps if gap.source == source), strict=True))
        yield GapRow(source, f"median of {len(columns[0])}", *map(median, columns))


def format_gap(gap: GapRow) -> tuple[str, ...]:
    """Return the cells of a row."""
    return gap.source, gap.job, f"{gap.gap_pct:.0f} %", f"{gap.speedup:.2f}", *(f"{one:+.0f} %" for one in gap[4:])


def get_tokens(row: PublishedJob) -> int:
    """Return the length of a language model's sequences; 0 for other models."""
    return int(row.job.model.partition("/")[2] or 0)
