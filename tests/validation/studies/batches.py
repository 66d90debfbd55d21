"""Holds predictions from one GPU to another against published throughputs, from batches that the host limits on.

python -m tests.validation.studies.batches

Three image classifiers on one V100 and on one T4, in fp32 and in mixed precision, 1 to 256 images at once. Stand-ins
as in gpus.py; the host takes as long for each kernel as gives the V100's throughput with one image, the V100's
kernels are scaled so that they give its throughput with 256. What lies between on the V100 tests the stand-in; the
T4's, all nine batches, are predicted from those on the V100.

Source: NVIDIA/DeepLearningExamples at 729963dd, PyTorch/Classification/ConvNets, the READMEs of resnet50v1.5,
resnext101-32x4d and se-resnext101-32x4d, inference performance.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import tracekit as tk
from predictors import Batch
from tests.validation.published_jobs.jobs import Job, calls, kernels
from tests.validation.published_jobs.trace import built
from tests.validation.tables import print_table

TABLE = Path(__file__).parents[1] / "published" / "batch_throughputs.csv"
FROM, TO = "v100-sxm-16gb", "t4"
ONE, MANY = 1, 256

Throughputs = dict[tuple[str, int], float]


def main() -> None:
    """Prints a row for each batch, over all jobs."""
    jobs: dict[Job, Throughputs] = defaultdict(dict)
    with TABLE.open() as lines:
        for row in csv.DictReader(lines):
            job = Job(row["job"], "infer", row["precision"])
            jobs[job][row["gpu"], int(row["batch"])] = float(row["samples_per_s"])
    heading = "| images | T4 over V100 | stand-in, V100 | T4: error, median | of it absolute | worst | in interval |"
    print_table(heading, rows(jobs))


def rows(jobs: dict[Job, Throughputs]) -> Iterator[str]:
    """The table's lines."""
    found: dict[int, list[tuple[float, float, float, bool]]] = defaultdict(list)
    for job, published in jobs.items():
        host_us, slower = fitted(job, published)
        for batch in sorted({batch for _, batch in published}):
            found[batch].append(outcome(job, batch, published, host_us, slower))
    for batch, outcomes in found.items():
        ratios, sources, errors, inside = zip(*outcomes, strict=True)
        yield (
            f"| {batch} | {median(ratios):.2f} | {median(sources):+.0f} % | {median(errors):+.0f} % "
            f"| {median(map(abs, errors)):.0f} % | {max(errors, key=abs):+.0f} % | {sum(inside)} of {len(errors)} |"
        )


def fitted(job: Job, published: Throughputs) -> tuple[float, float]:
    """Microseconds of the host for each kernel, and how much longer than from shapes kernels take."""
    one, many = (1e6 * batch / published[FROM, batch] for batch in (ONE, MANY))
    return one / kernels(job, ONE).height, many / float(Batch(kernels(job, MANY)).on(FROM)["time_us"].sum())


def outcome(
    job: Job, batch: int, published: Throughputs, host_us: float, slower: float
) -> tuple[float, float, float, bool]:
    """How fast the T4 was over the V100, errors in percent on both, and whether the T4's interval holds its truth."""
    times = Batch(kernels(job, batch)).on(FROM)["time_us"] * slower
    there = tk.predict(built(calls(job, batch), times, host_us), gpu=TO, source_gpu=FROM, calibration=False)
    on_source, on_target = published[FROM, batch], published[TO, batch]
    rate, least, most = (1e6 * batch / us for us in (there[TO].step.step_time_us, there[TO].high_us, there[TO].low_us))
    source = 1e6 * batch / there.run.measured_step.step_time_us
    errors = (100 * (found / truth - 1) for found, truth in ((source, on_source), (rate, on_target)))
    return on_target / on_source, *errors, least <= on_target <= most


if __name__ == "__main__":
    main()
