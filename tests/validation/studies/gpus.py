"""Holds predictions against published throughputs of one job on several single GPUs.

python -m tests.validation.studies.gpus [SOURCE...] [--jobs] [--write]

No trace of these jobs is public, so stand-ins are (``published_jobs``): the kernels of the same models, told by running
them on tensors without data, read by tracekit as from a trace.
*From shapes*: each GPU's throughput by the kernels' shapes
and the datasheet alone. *Carried*: the kernels' times on one GPU, scaled so that they give that GPU's published
throughput, are predicted for another, as those of a trace would be. ``--jobs`` prints the first for each job,
``--write`` keeps beside the weights, for the notes of a prediction, how far off those were that were carried to a GPU
from one that isn't its sibling.

Sources: timm, huggingface/pytorch-image-models at aa4b5850, results/benchmark-infer-amp-nhwc-pt240-cu124-rtx3090.csv
and -rtx4090.csv; timm 2.9, there, with PyTorch 2.9 and channels first, benchmark-infer-amp-nchw-pt291-cu128-4090.csv,
-cu130-5090.csv and -pro6000maxq.csv; timm training, there, benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv, but for
models of attention, which wasn't fused then; nvidia, NVIDIA/DeepLearningExamples at 729963dd,
PyTorch/Classification/ConvNets, the READMEs of resnet50v1.5, resnext101-32x4d, se-resnext101-32x4d and efficientnet;
lambda, lambdal/deeplearning-benchmark at aa5addb6, pytorch/pytorch-train-throughput-fp16.csv, -fp32.csv and the batches
beside them (SQuAD, 384 tokens); ibm, foundation-model-stack/fms-fsdp, README.md at 6dc80d2 (February 2024), of the
compiled at ed74fd5 (May 2024).
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import polars as pl

from predictors import Batch, load_gpu
from predictors.hardware import derive_hardware
from predictors.transfer import classify_kinship
from predictors.weights_file import shipped_sha256
from tests.validation.published_jobs.jobs import Published, kernels, published
from tests.validation.published_jobs.kernels import carried, in_all
from tests.validation.tables import print_table
from tracekit.prediction.track_record import TRACK_RECORD_FILE


@dataclass(frozen=True)
class Outcome:
    """A prediction beside what was published; samples a second."""

    row: Published
    predicted: float
    low: float
    high: float

    @property
    def error_pct(self) -> float:
        """Of the throughput."""
        return 100 * (self.predicted / self.row.samples_per_s - 1)

    @property
    def inside(self) -> bool:
        """Whether the interval holds what was published."""
        return self.low <= self.row.samples_per_s <= self.high


def main() -> None:
    """Prints the tables."""
    sources = [word for word in sys.argv[1:] if not word.startswith("--")]
    rows = [row for row in published() if not sources or row.source in sources]
    alone = {row: from_shapes(row) for row in rows}
    if "--jobs" in sys.argv:
        print_table("| job | GPU | samples/s | predicted | error | in interval |", map(job_line, alone.values()))
    print_table(heading("from shapes"), summary(alone.values()))
    told = []
    for source in dict.fromkeys(row.source for row in rows):
        if others := [(one, carry(one, other, alone)) for one, other in pairs(rows, source)]:
            print_table(heading(f"carried, {source}"), summary(outcome for _, outcome in others))
            told += [outcome for one, outcome in others if not siblings(one.gpu, outcome.row.gpu)]
    if "--write" in sys.argv:
        write(told)


def siblings(one: str, other: str) -> bool:
    """Whether two GPUs run the same kernels."""
    return classify_kinship(*(derive_hardware(load_gpu(gpu)) for gpu in (one, other))) == "sibling"


def write(outcomes: Iterable[Outcome]) -> None:
    """Keeps the errors of throughputs by GPU, with which weights they are of."""
    by_gpu: dict[str, list[float]] = defaultdict(list)
    for one in outcomes:
        by_gpu[load_gpu(one.row.gpu).slug].append(one.error_pct)
    lines = [
        "# Errors of published throughputs carried to a GPU from others that aren't its siblings, percent, by",
        "# tests/validation/studies/gpus.py; above zero is predicted too fast.",
        f'weights = "{shipped_sha256()}"',
    ]
    for gpu, errors in sorted(by_gpu.items()):
        worst = max(errors, key=abs)
        lines += [
            "",
            f"[jobs.{gpu}]",
            f"pairs = {len(errors)}",
            f"median = {median(errors):.1f}",
            f"worst = {worst:.1f}",
        ]
    TRACK_RECORD_FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def pairs(rows: Sequence[Published], source: str) -> Iterator[tuple[Published, Published]]:
    """Each job on one GPU and on another."""
    jobs = defaultdict(list)
    for row in rows:
        if row.source == source:
            jobs[row.job].append(row)
    for same in jobs.values():
        yield from ((one, other) for one in same for other in same if one is not other)


def from_shapes(row: Published) -> Outcome:
    """Without any measured time."""
    table = kernels(row.job, row.batch)
    return outcome(row, table, Batch(table).on(row.gpu))


def carry(one: Published, other: Published, alone: dict[Published, Outcome]) -> Outcome:
    """From one GPU to another: at the other's batch, with kernels that fall as short of the model there as here."""
    table = kernels(other.job, other.batch)
    times = carried(table, one.gpu, other.gpu, slower=alone[one].predicted / one.samples_per_s)
    return outcome(other, table, times)


def outcome(row: Published, table: pl.DataFrame, times: pl.DataFrame) -> Outcome:
    """What the kernels' times give."""
    step_us, low_us, high_us = in_all(table, times)
    return Outcome(row, *(1e6 * row.batch / us for us in (step_us, high_us, low_us)))


def heading(what: str) -> str:
    """Of a table."""
    return f"| {what}: to | GPU | predictions | error, median | of it absolute | worst | in interval |"


def summary(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """A line for each source and GPU, and one for all."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for one in outcomes:
        groups[one.row.source, load_gpu(one.row.gpu).name].append(one)
        groups["all", ""].append(one)
    for (source, gpu), some in sorted(groups.items(), key=lambda group: group[0][0] == "all"):
        errors = [one.error_pct for one in some]
        inside = sum(one.inside for one in some)
        yield (
            f"| {source} | {gpu} | {len(some)} | {median(errors):+.0f} % | {median(map(abs, errors)):.0f} % "
            f"| {max(errors, key=abs):+.0f} % | {inside} |"
        )


def job_line(one: Outcome) -> str:
    """A line for a job on a GPU."""
    row = one.row
    name = f"{row.job.model}, {row.job.step}, {row.job.precision}"
    return (
        f"| {name} | {load_gpu(row.gpu).name} | {row.samples_per_s:,.0f} | {one.predicted:,.0f} "
        f"| {one.error_pct:+.0f} % | {'yes' if one.inside else 'no'} |"
    )


if __name__ == "__main__":
    main()
