"""A served mixture of experts, from its traces on one GPU and from its config alone: other GPUs, larger batches.

OLMoE-1B-7B (64 experts, 8 a token) in vLLM, recorded on an RTX PRO 6000, in bf16 and with fp8 weights. The traces'
owner also timed the same jobs without the profiler on an L4, on two GPUs, and at other batch sizes. Sizes of kernels in
CUDA graphs come from the model's config.json. From the config alone, keys are the mean of those that a row names.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import tracekit as tk
from tests.validation.study import PUBLISHED, SERVED_TRACES, find_input, format_table, list_sources, read_published
from tracekit.prediction.model import Prediction
from tracekit.request import PredictRequest
from tracekit.request.program_options import ProgramOptions

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
    """Predictions beside what was timed without the profiler: from the trace, and from the model's config."""

    row: ServedJob
    of_trace: Prediction
    of_config: Prediction

    @property
    def kind(self) -> str:
        """Return the format of the weights and the kind of step."""
        form = "fp8" if self.row.trace.startswith("fp8") else "bf16"
        return f"{form} {self.row.what.partition(',')[0]}"

    @property
    def ratio(self) -> float:
        """Return the config's time over the trace's."""
        return self.of_config.step.step_time_us / self.of_trace.step.step_time_us

    def compute_error_pct(self, predicted: Prediction) -> float:
        """Return the error of a step's time."""
        return 100 * (predicted.step.step_time_us / 1e3 / self.row.measured_ms - 1)

    def is_inside(self, predicted: Prediction) -> bool:
        """Return whether an interval holds the measured time."""
        return predicted.low_us <= 1e3 * self.row.measured_ms <= predicted.high_us


def run() -> str:
    """Return the table of all jobs, and medians."""
    outcomes = list(predict_all(find_input(SERVED_TRACES)))
    headings = ("job", "on", "batch", "timed", "predicted", "error", "interval", "inside", "from config", "inside ")
    errors = [abs(one.compute_error_pct(one.of_trace)) for one in outcomes]
    batches = [abs(one.compute_error_pct(one.of_trace)) for one in outcomes if one.row.batch > 1]
    of_configs = [abs(one.compute_error_pct(one.of_config)) for one in outcomes]
    alone = [one for one in outcomes if one.row.gpus == 1]
    ratios = {kind: [one.ratio for one in alone if one.kind == kind] for kind in sorted({one.kind for one in alone})}
    told = "; ".join(f"{kind} {min(one):.2f} to {max(one):.2f} ({len(one)})" for kind, one in ratios.items())
    return "\n".join(
        (
            "# A served mixture of experts\n",
            format_table(headings, map(format_outcome, outcomes)),
            f"Absolute error, median: {median(errors):.1f} % of all {len(errors)}, {median(batches):.1f} % of the "
            f"{len(batches)} larger batches; {sum(one.is_inside(one.of_trace) for one in outcomes)} in the interval. "
            f"From the config alone: {median(of_configs):.1f} %, "
            f"{sum(one.is_inside(one.of_config) for one in outcomes)} in the interval.\n",
            f"Its times over those from the trace, on one GPU: {told}.\n",
            list_sources("served_jobs"),
        )
    )


def predict_all(folder: Path) -> Iterator[Outcome]:
    """Predict each job from its trace, and from the config."""
    for row in (ServedJob(**given) for given in read_published("served_jobs").iter_rows(named=True)):
        (path,) = folder.glob(f"{row.trace}*/*.json.gz")
        alone = row.gpus == 1
        where: dict[str, Any] = {"gpu": row.gpu} if alone else {"cluster": f"{row.gpus}x{row.gpu}", "tp": row.gpus}
        predicted = tk.predict(
            tk.load(path),
            model_config=str(MODEL),
            **where,
            batch=row.batch if row.batch > 1 else None,
            context=row.context,
            unprofiled_step=f"{row.unprofiled_ms}ms" if row.unprofiled_ms else None,
            no_calibration=True,
        )
        yield Outcome(row, predicted.targets[0], predict_from_config(row, where))


def predict_from_config(row: ServedJob, where: Mapping[str, Any]) -> Prediction:
    """Predict a job's step from the model's config alone, at the mean of the tokens that the row names."""
    tokens = round(mean(int(one) for one in re.findall(r"\d+", row.what)))
    is_decode = row.what.startswith("decode")
    program = ProgramOptions(
        decode=is_decode,
        prefill=not is_decode,
        seq=tokens,
        precision="fp8" if row.trace.startswith("fp8") else None,
    )
    trace, left = program.capture_trace(str(MODEL), PredictRequest(**where, framework="vllm", batch=float(row.batch)))
    return tk.predict(trace, **where, framework=left.framework, no_calibration=True).targets[0]


def format_outcome(one: Outcome) -> tuple[str, ...]:
    """Return the cells of one job."""
    row, step = one.row, one.of_trace
    form = one.kind.split()[0]
    return (
        f"{form}, {row.what}{f', `--unprofiled-step {row.unprofiled_ms}ms`' if row.unprofiled_ms else ''}",
        f"{row.gpus} x {row.gpu}" if row.gpus > 1 else row.gpu,
        str(row.batch),
        f"{row.measured_ms:.2f} ms",
        f"{step.step.step_time_us / 1e3:.2f} ms",
        f"{one.compute_error_pct(step):+.1f} %",
        f"{step.low_us / step.step.step_time_us:.2f} to {step.high_us / step.step.step_time_us:.2f}",
        "yes" if one.is_inside(step) else "no",
        f"{one.compute_error_pct(one.of_config):+.1f} %",
        "yes" if one.is_inside(one.of_config) else "no",
    )
