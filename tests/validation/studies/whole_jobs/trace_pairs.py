"""Traces predicted for another GPU against traces of the same job, or of equal ops, on that GPU.

Files of the same name but for the GPU they begin with (h100_vit_inference, mi300x_vit_inference) are one job. The
jobs of sample_traces/recorded ran by one script in two virtual machines, whose hosts differ more than their GPUs. Equal
ops are the same PyTorch op on equal shapes, whatever the jobs; ops without recorded sizes (`cat`) are left out. "With
that host" is the prediction for the speed of the host in the other trace, `--host` as `tracekit info` prints it there;
"usual host" is the second line of a prediction whose step hangs on the CPU.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import median

import polars as pl

import tracekit as tk
from sample_traces.record import RECORDED
from tests.asking import predict
from tests.validation.study import REAL_TRACES, find_input, format_kernel_errors, format_table
from tracekit.hosts import measure_host_speed
from tracekit.prediction.model import Prediction, StepOnUsualHost
from tracekit.run import MeasuredRun, prepare_run

INPUTS = (REAL_TRACES,)
PAIRED_GPUS = ("h100", "mi300x")
RECORDED_PAIR = ("h100-sxm", "h200-sxm")
EQUAL_OP_TRACES = (("a100_dlrm_control", "v100_dlrm_test"),)
MIN_US = 20.0
OP_KEY = ("op", "input_dims", "input_types", "family", "turn")
"""Columns that identify equal calls; `turn` numbers the kernels of one family in a call."""
WITH_SIZES = pl.col("op").str.starts_with("aten::") & pl.col("input_dims").str.contains(r"\d")


@dataclass(frozen=True)
class Outcome:
    """A prediction beside the trace of the same job on the predicted GPU."""

    job: str
    direction: str
    predicted: Prediction
    measured: MeasuredRun
    with_host: Prediction | None

    @property
    def step_error(self) -> float:
        """Return the relative error of the step time."""
        return self.predicted.step.step_time_us / self.measured.measured_step.step_time_us - 1

    @property
    def host_error(self) -> float | None:
        """Return the relative error of the step time, predicted for the host of the other trace."""
        if self.with_host is None:
            return None
        return self.with_host.step.step_time_us / self.measured.measured_step.step_time_us - 1

    @property
    def busy_error(self) -> float:
        """Return the relative error of the GPU's busy time."""
        return self.predicted.step.kernel_time_us / self.measured.measured_step.kernel_time_us - 1

    def holds(self, predicted: Prediction | StepOnUsualHost) -> bool:
        """Return whether the interval of one of the predictions holds the measured step."""
        return predicted.low_us <= self.measured.measured_step.step_time_us <= predicted.high_us


def run() -> str:
    """Return a table of jobs, its summary, and a table of equal ops."""
    folder = find_input(REAL_TRACES)
    outcomes = list(predict_pairs(folder, *PAIRED_GPUS))
    recorded = list(predict_pairs(RECORDED, *RECORDED_PAIR))
    summary_headings = ("", "absolute error, median", "worst", "in interval")
    job_headings = (
        "job", "from → to", "step", "predicted (90 % interval)", "error", "with that host", "error", "GPU busy",
        "predicted", "error",
    )  # fmt: skip
    op_headings = (
        "from → to", "family", "ops", "measured there", "predicted", "error", "ops from 20 µs on", "median",
        "in interval",
    )  # fmt: skip
    return "\n".join(
        (
            "# The same jobs on two GPUs\n",
            format_table(job_headings, map(format_outcome, outcomes)),
            format_table(summary_headings, summarize_pairs(outcomes)),
            "## Recorded samples\n",
            format_table(job_headings, map(format_outcome, recorded)),
            format_table(summary_headings, summarize_pairs(recorded)),
            "## Equal ops of different jobs\n",
            format_table(op_headings, (row for pair in EQUAL_OP_TRACES for row in compare_traces(folder, *pair))),
        )
    )


def predict_pairs(folder: Path, first: str, second: str) -> Iterator[Outcome]:
    """Yield the predictions of each job recorded on both GPUs, in both directions."""
    for path in sorted(folder.glob(f"{first}_*.json.gz")):
        other = folder / path.name.replace(first, second, 1)
        if other.exists():
            runs = [prepare_run(tk.load(one)) for one in (path, other)]
            for source, target in permutations(runs):
                slug = get_slug(target)
                job = path.name.removeprefix(f"{first}_").removesuffix(".json.gz")
                yield Outcome(
                    job,
                    f"{get_slug(source)} → {slug}",
                    predict(source, [slug])[slug],
                    target,
                    predict_with_host(source, target),
                )


def predict_with_host(source: MeasuredRun, target: MeasuredRun) -> Prediction | None:
    """Predict for the target's GPU and the speed of its host; ``None`` where a host's speed isn't known."""
    here, there = (measure_host_speed(run.ranks) for run in (source, target))
    if here is None or there is None:
        return None
    slug = get_slug(target)
    return predict(source, [slug], host=there.speed)[slug]


def get_slug(run: MeasuredRun) -> str:
    """Return the traced GPU's slug.

    Raises:
        SystemExit: The trace doesn't name its GPU.
    """
    if run.gpu is None:
        raise SystemExit("trace_pairs: a trace doesn't name its GPU")
    return run.gpu.slug


def format_outcome(outcome: Outcome) -> tuple[str, ...]:
    """Return a row of the table of jobs."""
    measured, found = outcome.measured.measured_step, outcome.predicted
    return (
        outcome.job,
        outcome.direction,
        f"{measured.step_time_us / 1e3:.4g} ms",
        format_step(found),
        f"{outcome.step_error:+.0%}",
        format_step(outcome.with_host) if outcome.with_host else "–",
        "–" if outcome.host_error is None else f"{outcome.host_error:+.0%}",
        f"{measured.kernel_time_us / 1e3:.4g} ms",
        f"{found.step.kernel_time_us / 1e3:.4g} ms",
        f"{outcome.busy_error:+.0%}",
    )


def format_step(found: Prediction) -> str:
    """Return a predicted step with its interval."""
    return f"{found.step.step_time_us / 1e3:.4g} ms ({found.low_us / 1e3:.4g}–{found.high_us / 1e3:.4g})"


def summarize_pairs(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    """Yield a row of the steps, and one of the GPU's busy time."""
    if outcomes:
        steps, busy = ([abs(error) for error in errors] for errors in zip(*map(list_errors, outcomes), strict=True))
        inside = sum(outcome.holds(outcome.predicted) for outcome in outcomes)
        yield "step", f"{median(steps):.0%}", f"{max(steps):.0%}", f"{inside} of {len(outcomes)}"
        hosted = [(one, one.with_host, abs(one.host_error)) for one in outcomes if one.with_host and one.host_error]
        if hosted:
            held = sum(one.holds(predicted) for one, predicted, _ in hosted)
            errors = [error for *_, error in hosted]
            yield "step, with that host", f"{median(errors):.0%}", f"{max(errors):.0%}", f"{held} of {len(hosted)}"
        usual = [(one, found) for one in outcomes if (found := one.predicted.usual_host)]
        if usual:
            measured = [one.measured.measured_step.step_time_us for one, _ in usual]
            errors = [abs(found.step_time_us / us - 1) for (_, found), us in zip(usual, measured, strict=True)]
            held = sum(one.holds(found) for one, found in usual)
            yield "step, usual host", f"{median(errors):.0%}", f"{max(errors):.0%}", f"{held} of {len(usual)}"
        yield "GPU busy", f"{median(busy):.0%}", f"{max(busy):.0%}", ""


def list_errors(outcome: Outcome) -> tuple[float, float]:
    """Return the errors of step and busy time."""
    return outcome.step_error, outcome.busy_error


def compare_traces(folder: Path, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of equal ops of two traces, in both directions; none if a trace is missing."""
    paths = [folder / f"{name}.json.gz" for name in names]
    if all(path.exists() for path in paths):
        for source, target in permutations(prepare_run(tk.load(path)) for path in paths):
            yield from compare_equal_ops(source, target)


def compare_equal_ops(source: MeasuredRun, target: MeasuredRun) -> Iterator[tuple[str, ...]]:
    """Yield a row for each family, the longest first, and one of all."""
    slug = get_slug(target)
    direction = f"{get_slug(source)} → {slug}"
    times = predict(source, [slug])[slug].kernels.select("time_us", "low_us", "high_us")
    predicted = select_calls(pl.concat([source.kernels, times], how="horizontal"))
    predicted = predicted.group_by(OP_KEY).agg(pl.col("time_us", "low_us", "high_us").median())
    measured = select_calls(target.kernels).group_by(OP_KEY).agg(pl.col("us").median(), count=pl.len())
    equal = predicted.join(measured, on=OP_KEY)
    families = sorted(equal.partition_by("family"), key=lambda rows: -(rows["us"] * rows["count"]).sum())
    for rows in families:
        yield direction, rows["family"][0], *summarize_equal_ops(rows)
    if families:
        yield direction, "all", *summarize_equal_ops(equal)


def select_calls(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of PyTorch's ops with recorded sizes, with `us` and `turn`."""
    calls = kernels.filter(WITH_SIZES, pl.col("kind") == "kernel")
    return calls.with_columns(us=pl.col("dur_ns") / 1e3, turn=pl.int_range(pl.len()).over("op_row", "family"))


def summarize_equal_ops(equal: pl.DataFrame) -> tuple[str, ...]:
    """Return the cells of some ops; sums are over all calls on the target."""
    measured_us, predicted_us = (float((equal[column] * equal["count"]).sum()) for column in ("us", "time_us"))
    return (
        str(equal.height),
        f"{measured_us / 1e3:.3g} ms",
        f"{predicted_us / 1e3:.3g} ms",
        f"{100 * (predicted_us / measured_us - 1):+.0f} %",
        *format_kernel_errors(equal.filter(pl.col("us") >= MIN_US), "us"),
    )
