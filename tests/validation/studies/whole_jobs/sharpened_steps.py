"""Captured programs whose times a trace from an H100 corrects, against the GPU's time on an H100 and an H200.

The trace is of the same program, or of it at another batch or in another phase: training for inference. The programs
are those of `captured_steps`; the CPU is left out, as in one CUDA graph.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from statistics import median

import tracekit as tk
from sample_traces import workloads
from sample_traces.record import RECORDED
from tests.validation.studies.whole_jobs.captured_steps import COMPILED, LEFT_OUT, capture_workload
from tests.validation.study import format_table
from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.sharpen import MeasuredOps, measure_ops
from tracekit.capturing.timed_trace import load_captured
from tracekit.prediction import Prediction
from tracekit.run import prepare_run

INPUTS = ()
SOURCE, TARGETS = "h100-sxm", ("h100-sxm", "h200-sxm")
OTHERS = {
    "gpt2_train": "gpt2_train_batch16",
    "gpt2_train_batch16": "gpt2_train",
    "llama_train": "llama_prefill",
    "llama_prefill": "llama_train",
}
"""Programs, and another one with the same layers."""
HEADINGS = ("program", "trace of", "GPU", "GPU time", "from shapes", "error", "corrected", "error")


@dataclass(frozen=True)
class Outcome:
    """A program's GPU time, and both predictions; times in milliseconds."""

    program: str
    trace: str
    gpu: str
    busy_ms: float
    plain: Prediction
    sharpened: Prediction

    @property
    def errors(self) -> tuple[float, float]:
        """Return the errors of both, in percent."""
        first, second = (one.step.step_time_us / 1e3 / self.busy_ms for one in (self.plain, self.sharpened))
        return 100 * (first - 1), 100 * (second - 1)

    @property
    def are_inside(self) -> tuple[bool, bool]:
        """Return whether the intervals hold the GPU's time."""
        first, second = (one.low_us <= 1e3 * self.busy_ms <= one.high_us for one in (self.plain, self.sharpened))
        return first, second

    @property
    def cells(self) -> tuple[str, ...]:
        """Return its row."""
        shown = [
            text
            for one, error in zip((self.plain, self.sharpened), self.errors, strict=True)
            for text in (
                f"{one.step.step_time_us / 1e3:.3g} ms ({one.low_us / 1e3:.3g}–{one.high_us / 1e3:.3g})",
                f"{error:+.0f} %",
            )
        ]
        return self.program, self.trace, self.gpu, f"{self.busy_ms:.3g} ms", *shown


def run() -> str:
    """Return the errors with and without a trace, and a row for each program and GPU."""
    found = [*predict_programs({name: name for name in list_programs()}), *predict_programs(OTHERS)]
    groups = {
        "the same program, its GPU": [one for one in found if one.program == one.trace and one.gpu == SOURCE],
        "the same program, another GPU": [one for one in found if one.program == one.trace and one.gpu != SOURCE],
        "another batch or phase": [one for one in found if one.program != one.trace],
    }
    return "\n".join(
        (
            "# Captured programs, corrected by a trace\n",
            format_table(
                ("trace of", "steps", "median absolute error from shapes", "inside", "corrected", "inside"),
                (summarize(name, members) for name, members in groups.items()),
            ),
            format_table(HEADINGS, (one.cells for one in found)),
        )
    )


def summarize(name: str, members: list[Outcome]) -> tuple[str, ...]:
    """Return the row of a group."""
    errors = [median(abs(one.errors[place]) for one in members) for place in range(2)]
    inside = [sum(one.are_inside[place] for one in members) for place in range(2)]
    return name, str(len(members)), f"{errors[0]:.0f} %", str(inside[0]), f"{errors[1]:.0f} %", str(inside[1])


def list_programs() -> list[str]:
    """List the programs that can be captured."""
    return [name for name in workloads.WORKLOADS if name not in (*LEFT_OUT, COMPILED)]


@cache
def capture_named(name: str) -> CapturedProgram:
    """Capture a program."""
    return capture_workload(name, workloads.WORKLOADS[name])


def predict_programs(pairs: dict[str, str]) -> Iterator[Outcome]:
    """Yield programs, each corrected by the trace of another or of itself, on both GPUs."""
    for program, trace in pairs.items():
        measured = measure_ops(tk.load(RECORDED / f"{SOURCE}_{trace}.json.gz"))
        for gpu in TARGETS:
            recorded = prepare_run(tk.load(RECORDED / f"{gpu}_{program}.json.gz"))
            plain, sharpened = (predict_program(program, one, gpu) for one in (None, measured))
            yield Outcome(program, trace, gpu, recorded.measured_step.kernel_time_us / 1e3, plain, sharpened)


def predict_program(program: str, measured: MeasuredOps | None, gpu: str) -> Prediction:
    """Predict a program's step on a GPU."""
    trace = load_captured(capture_named(program), SOURCE, cuda_graph=True, measured=measured)
    return tk.predict(trace, gpu=gpu).targets[0]
