"""Published throughputs from one GPU to another at 1 to 256 images, from batches that the host limits on.

Three image classifiers on one V100 and on one T4, in fp32 and in mixed precision, rebuilt as in `throughputs`. The
host's time for each kernel is set so that one image gives the V100's throughput, the V100's kernels are scaled so that
256 give it. The V100's other batches test the rebuilt job; the T4's, all nine, are predicted from those on the V100.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import tracekit as tk
from predictors import Batch
from tests.validation.published_jobs.jobs import Job, capture_calls, tabulate_job_kernels
from tests.validation.study import format_errors, format_table, list_sources, read_published
from tracekit.capturing.timeline import build_trace

INPUTS = ()
SOURCE, TARGET = "v100-sxm-16gb", "t4"
SMALLEST, LARGEST = 1, 256

Throughputs = dict[tuple[str, int], float]
"""(GPU, images) -> published images a second."""


@dataclass(frozen=True)
class Outcome:
    """A batch of a job; errors of the throughput in percent.

    Attributes:
        ratio: Published throughput of the target over the source's.
        source_error_pct: Of the rebuilt job on the source.
        target_error_pct: Of the prediction.
        is_inside: Whether the interval holds the published throughput.
    """

    ratio: float
    source_error_pct: float
    target_error_pct: float
    is_inside: bool


def run() -> str:
    """Return a row for each batch, over all jobs."""
    headings = (
        "images", "T4 over V100", "rebuilt job on the V100", "T4: error, median", "absolute, median", "worst",
        "in interval",
    )  # fmt: skip
    return "\n".join(
        (
            "# From small batches to large, V100 to T4\n",
            format_table(headings, list_rows(read_throughputs())),
            list_sources("batch_throughputs"),
        )
    )


def read_throughputs() -> dict[Job, Throughputs]:
    """Read the published throughputs of each job."""
    jobs: dict[Job, Throughputs] = defaultdict(dict)
    for row in read_published("batch_throughputs").iter_rows(named=True):
        jobs[Job(row["job"], "infer", row["precision"])][row["gpu"], row["batch"]] = row["samples_per_s"]
    return jobs


def list_rows(jobs: dict[Job, Throughputs]) -> Iterator[tuple[str, ...]]:
    """Yield the table's rows."""
    found: dict[int, list[Outcome]] = defaultdict(list)
    for job, published in jobs.items():
        host_us, slowness = fit_job(job, published)
        for batch in sorted({batch for _, batch in published}):
            found[batch].append(predict_batch(job, batch, published, host_us, slowness))
    for batch, outcomes in found.items():
        yield (
            str(batch),
            f"{median(one.ratio for one in outcomes):.2f}",
            f"{median(one.source_error_pct for one in outcomes):+.0f} %",
            *format_errors([one.target_error_pct for one in outcomes]),
            f"{sum(one.is_inside for one in outcomes)} of {len(outcomes)}",
        )


def fit_job(job: Job, published: Throughputs) -> tuple[float, float]:
    """Return the host's microseconds for each kernel, and the kernels' time over that from shapes."""
    smallest_us, largest_us = (1e6 * batch / published[SOURCE, batch] for batch in (SMALLEST, LARGEST))
    kernels_us = float(Batch(tabulate_job_kernels(job, LARGEST)).on(SOURCE)["time_us"].sum())
    return smallest_us / tabulate_job_kernels(job, SMALLEST).height, largest_us / kernels_us


def predict_batch(job: Job, batch: int, published: Throughputs, host_us: float, slowness: float) -> Outcome:
    """Predict a batch of a job for the target."""
    times_us = Batch(tabulate_job_kernels(job, batch)).on(SOURCE)["time_us"] * slowness
    trace = build_trace(capture_calls(job, batch), times_us, host_us).load()
    predictions = tk.predict(trace, gpu=TARGET, source_gpu=SOURCE, no_calibration=True)
    target = predictions[TARGET]
    source_rate, rate, low, high = (
        1e6 * batch / us
        for us in (
            predictions.run.measured_step.step_time_us, target.step.step_time_us, target.high_us, target.low_us
        )
    )  # fmt: skip
    on_source, on_target = published[SOURCE, batch], published[TARGET, batch]
    return Outcome(
        on_target / on_source,
        100 * (source_rate / on_source - 1),
        100 * (rate / on_target - 1),
        low <= on_target <= high,
    )
