"""Recordings whose GPU events are taken away, against these: what the ops of the CPU tell of the GPU's time.

So it is with a recording on a machine without a GPU, and with a captured program: the same rules name the kernels that
an op launches. Left out are recordings of which the ops aren't all: compiled programs, CUDA graphs, one of several
ranks, and PyTorch before 2.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import tracekit as tk
from sample_traces.record import RECORDED
from tests.validation.study import REAL_TRACES, find_input, format_table
from tracekit.capturing.recorded_program import read_program
from tracekit.capturing.timed_trace import load_captured
from tracekit.errors import TracekitError
from tracekit.run import MeasuredRun, prepare_run

INPUTS = (REAL_TRACES,)
LEFT_OUT = ("compiled", "graph", "decode", "triton", "vllm", "excerpt")
"""Parts of names of recordings whose ops aren't all."""
HEADINGS = ("recording", "GPU", "kernels", "by ops", "GPU time", "predicted (90 % interval)", "error")


@dataclass(frozen=True)
class Outcome:
    """A recording's GPU time, and what its ops tell of it; times in milliseconds."""

    recording: str
    gpu: str
    kernels: float
    captured: float
    busy_ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float

    @property
    def error_pct(self) -> float:
        """Return the error."""
        return 100 * (self.predicted_ms / self.busy_ms - 1)

    @property
    def is_inside(self) -> bool:
        """Return whether the interval holds the GPU's time."""
        return self.low_ms <= self.busy_ms <= self.high_ms

    @property
    def cells(self) -> tuple[str, ...]:
        """Return its row."""
        return (
            self.recording,
            self.gpu,
            f"{self.kernels:.0f}",
            f"{self.captured:.0f}",
            f"{self.busy_ms:.3g} ms",
            f"{self.predicted_ms:.3g} ms ({self.low_ms:.3g}–{self.high_ms:.3g})",
            f"{self.error_pct:+.0f} %",
        )


def run() -> str:
    """Return the errors, and a row for each recording."""
    paths = [*sorted(find_input(REAL_TRACES).glob("*.json.gz")), *sorted(RECORDED.glob("*.json.gz"))]
    found = [one for path in paths for one in predict_recording(path)]
    inside = sum(one.is_inside for one in found)
    off = median(abs(one.error_pct) for one in found)
    return "\n".join(
        (
            "# Recordings without their GPU events\n",
            format_table(HEADINGS, (one.cells for one in found)),
            f"Off in the median: {off:.0f} %; {inside} of {len(found)} lie inside.\n",
        )
    )


def predict_recording(path: Path) -> Iterator[Outcome]:
    """Yield the outcome of a recording of one GPU, if its ops have shapes and values."""
    if ".et." in path.name or any(part in path.name for part in LEFT_OUT):
        return
    try:
        trace = tk.load(path)
    except TracekitError:
        return
    rank = trace.ranks[0]
    if rank.world_size > 1 or rank.capture_facts or not rank.ops["concrete_inputs"].count():
        return
    recorded = prepare_run(trace)
    if recorded.gpu is None:
        return
    program = read_program(replace(rank, activities=rank.activities.clear(), calls=rank.calls.clear()))
    if program is None:
        return
    run = prepare_run(load_captured(program, recorded.gpu.slug, cuda_graph=True))
    (predicted,) = tk.predict(load_captured(program, recorded.gpu.slug, cuda_graph=True), gpu=recorded.gpu.slug).targets
    yield Outcome(
        path.name.removesuffix(".json.gz"),
        recorded.gpu.slug,
        count_kernels(recorded),
        count_kernels(run),
        recorded.measured_step.kernel_time_us / 1e3,
        predicted.step.step_time_us / 1e3,
        predicted.low_us / 1e3,
        predicted.high_us / 1e3,
    )


def count_kernels(run: MeasuredRun) -> float:
    """Return the kernels of a step."""
    return run.kernels.filter(run.is_in_chosen_steps).height / run.measured_step.steps
