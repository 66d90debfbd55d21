"""Traces predicted for another GPU against traces of the same job, or of equal ops, on that GPU.

Files of the same name but for the GPU they begin with (h100_vit_inference, mi300x_vit_inference) are one job. The
jobs of sample_traces/recorded ran by one script in two virtual machines, whose hosts differ more than their GPUs. Equal
ops are the same PyTorch op on equal shapes, whatever the jobs; ops without recorded sizes (`cat`) are left out. The
prediction is the first line of `predict`, which isn't told the host; the machines of both traces are left out of the
known ones that it is made of. "With that host" is the prediction for the speed of the host in the other trace, `--host`
as `tracekit info` prints it there. The GPU bounds a step that it is busy for at least 85 % of, in both traces.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import permutations
from pathlib import Path
from statistics import median
from unittest.mock import patch

import polars as pl

import tracekit as tk
from sample_traces.record import RECORDED
from tests.asking import predict
from tests.validation.study import REAL_TRACES, find_input, format_kernel_errors, format_table, read_published
from tracekit.hosts import find_usual_host, measure_host_speed, usual
from tracekit.prediction.model import Prediction
from tracekit.run import MeasuredRun, prepare_run

INPUTS = (REAL_TRACES,)
PAIRED_GPUS = ("h100", "mi300x")
RECORDED_PAIR = ("h100-sxm", "h200-sxm")
EQUAL_OP_TRACES = (("a100_dlrm_control", "v100_dlrm_test"),)
MIN_US = 20.0
OP_KEY = ("op", "input_dims", "input_types", "family", "turn")
"""Columns that identify equal calls; `turn` numbers the kernels of one family in a call."""
MIN_GPU_BOUND_BUSY = 0.85
"""Share of a step in which the GPU is busy, from which on it is the GPU that bounds the step."""
WITH_SIZES = pl.col("op").str.starts_with("aten::") & pl.col("input_dims").str.contains(r"\d")


@dataclass(frozen=True)
class Outcome:
    """A prediction beside the trace of the same job on the predicted GPU."""

    job: str
    direction: str
    predicted: Prediction
    source: MeasuredRun
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

    @property
    def is_gpu_bound(self) -> bool:
        """Return whether the GPU bounds the step in both traces."""
        return min(_compute_busy_share(one) for one in (self.source, self.measured)) >= MIN_GPU_BOUND_BUSY

    def holds(self, predicted: Prediction) -> bool:
        """Return whether the interval of one of the predictions holds the measured step."""
        return predicted.low_us <= self.measured.measured_step.step_time_us <= predicted.high_us


def _compute_busy_share(run: MeasuredRun) -> float:
    return run.measured_step.kernel_time_us / run.measured_step.step_time_us


def run() -> str:
    """Return a table of jobs, its summary, and a table of equal ops."""
    folder = find_input(REAL_TRACES)
    outcomes = list(predict_pairs(folder, *PAIRED_GPUS))
    recorded = list(predict_pairs(RECORDED, *RECORDED_PAIR))
    summary_headings = ("", "absolute error, median", "worst", "in interval", "high/low, median", "widest")
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
            job = path.name.removeprefix(f"{first}_").removesuffix(".json.gz")
            with leave_out_machines(path.name, other.name):
                yield from [predict_pair(job, *pair) for pair in permutations(runs)]


def predict_pair(job: str, source: MeasuredRun, target: MeasuredRun) -> Outcome:
    """Predict a job for the GPU of its other trace."""
    slug = get_slug(target)
    predicted = predict(source, [slug])[slug]
    return Outcome(job, f"{get_slug(source)} → {slug}", predicted, source, target, predict_with_host(source, target))


@contextmanager
def leave_out_machines(*traces: str) -> Iterator[None]:
    """Leave the machines of some traces out of the known hosts."""
    rows = read_published("host_traces").iter_rows(named=True)
    theirs = [row["machine"] for row in rows for trace in traces if fnmatch(trace, f"{row['trace']}.json.gz")]
    others = usual.load_machines().filter(~pl.col("machine").is_in(theirs))
    find_usual_host.cache_clear()
    with patch.object(usual, "load_machines", lambda: others):
        yield
    find_usual_host.cache_clear()


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
    """Yield rows of the steps by what bounds them, without and with the host, and one of the GPU's busy time."""
    gpu_bound, cpu_bound = ([one for one in outcomes if one.is_gpu_bound is bound] for bound in (True, False))
    for kind, chosen in (("all", outcomes), ("GPU-bound", gpu_bound), ("CPU-bound", cpu_bound)):
        yield from _summarize_steps(kind, chosen, lambda one: one.predicted)
        yield from _summarize_steps(f"{kind}, with that host", chosen, lambda one: one.with_host)
    if outcomes:
        busy = [abs(one.busy_error) for one in outcomes]
        yield "GPU busy", f"{median(busy):.0%}", f"{max(busy):.0%}", "", "", ""


def _summarize_steps(
    kind: str, outcomes: Sequence[Outcome], choose: Callable[[Outcome], Prediction | None]
) -> Iterator[tuple[str, ...]]:
    """Yield a row of steps as predicted in one way, if any is."""
    found = [(one, predicted) for one in outcomes if (predicted := choose(one))]
    if not found:
        return
    errors = [abs(there.step.step_time_us / one.measured.measured_step.step_time_us - 1) for one, there in found]
    widths = [there.high_us / there.low_us for _, there in found]
    held = sum(one.holds(there) for one, there in found)
    yield (
        kind,
        f"{median(errors):.0%}",
        f"{max(errors):.0%}",
        f"{held} of {len(found)}",
        f"{median(widths):.3g}",
        f"{max(widths):.3g}",
    )


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
