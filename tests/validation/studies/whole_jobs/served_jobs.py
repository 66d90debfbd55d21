"""A served mixture of experts, from its traces on one GPU: on another GPU, on two GPUs, in larger batches.

OLMoE-1B-7B (64 experts, 8 a token) in vLLM, recorded on an RTX PRO 6000, in bf16 and with fp8 weights. The traces'
owner also timed the same jobs without the profiler on an L4, on two GPUs, and at other batch sizes. Sizes of kernels in
CUDA graphs come from the model's config.json.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import tracekit as tk
from tests.validation.study import PUBLISHED, SERVED_TRACES, find_input, format_table, list_sources, read_published
from tracekit.prediction.model import Prediction

INPUTS = (SERVED_TRACES,)
MODEL = PUBLISHED / "olmoe_config.json"


@dataclass(frozen=True)
class ServedJob:
    """A job as it was timed; columns of served_jobs.csv.

    Attributes:
        context: Keys in the cache, where others than in the trace.
        measured_ms: Time without the profiler.
        unprofiled_ms: Time of the traced job without the profiler, to take the profiler's overhead out with.
    """

    trace: str
    gpu: str
    gpus: int
    batch: int
    context: int | None
    measured_ms: float
    unprofiled_ms: float | None
    what: str
    source: str


@dataclass(frozen=True)
class Outcome:
    """A prediction beside what was timed without the profiler."""

    row: ServedJob
    predicted: Prediction

    @property
    def error_pct(self) -> float:
        """Return the error of the step time."""
        return 100 * (self.predicted.step.step_time_us / 1e3 / self.row.measured_ms - 1)

    @property
    def is_inside(self) -> bool:
        """Return whether the interval holds the measured time."""
        return self.predicted.low_us <= 1e3 * self.row.measured_ms <= self.predicted.high_us


def run() -> str:
    """Return the table of all jobs, and medians."""
    outcomes = list(predict_all(find_input(SERVED_TRACES)))
    headings = ("job", "on", "batch", "timed", "predicted", "error", "interval", "inside")
    errors = [abs(one.error_pct) for one in outcomes]
    batches = [abs(one.error_pct) for one in outcomes if one.row.batch > 1]
    return "\n".join(
        (
            "# A served mixture of experts\n",
            format_table(headings, map(format_outcome, outcomes)),
            f"Absolute error, median: {median(errors):.1f} % of all {len(errors)}, {median(batches):.1f} % of the "
            f"{len(batches)} larger batches; {sum(one.is_inside for one in outcomes)} in the interval.\n",
            list_sources("served_jobs"),
        )
    )


def predict_all(folder: Path) -> Iterator[Outcome]:
    """Predict each job from its trace."""
    for row in (ServedJob(**given) for given in read_published("served_jobs").iter_rows(named=True)):
        (path,) = folder.glob(f"{row.trace}*/*.json.gz")
        alone = row.gpus == 1
        predicted = tk.predict(
            tk.load(path),
            model_config=str(MODEL),
            gpu=row.gpu if alone else (),
            cluster=() if alone else f"{row.gpus}x{row.gpu}",
            tp=None if alone else row.gpus,
            batch=row.batch if row.batch > 1 else None,
            context=row.context,
            unprofiled_step=f"{row.unprofiled_ms}ms" if row.unprofiled_ms else None,
            no_calibration=True,
        )
        yield Outcome(row, predicted.targets[0])


def format_outcome(one: Outcome) -> tuple[str, ...]:
    """Return the cells of one job."""
    row, step = one.row, one.predicted
    kind = "fp8" if row.trace.startswith("fp8") else "bf16"
    return (
        f"{kind}, {row.what}{f', `--unprofiled-step {row.unprofiled_ms}ms`' if row.unprofiled_ms else ''}",
        f"{row.gpus} x {row.gpu}" if row.gpus > 1 else row.gpu,
        str(row.batch),
        f"{row.measured_ms:.2f} ms",
        f"{step.step.step_time_us / 1e3:.2f} ms",
        f"{one.error_pct:+.1f} %",
        f"{step.low_us / step.step.step_time_us:.2f} to {step.high_us / step.step.step_time_us:.2f}",
        "yes" if one.is_inside else "no",
    )
