"""Programs captured without a GPU, against how long their steps took on two GPUs.

The jobs of sample_traces/recorded, from their code alone: each step was repeated for some seconds without the profiler,
whose time is the step's; the kernels' sum is compared with the GPU's busy time in the recorded trace. Left out are
one in a CUDA graph, and experts, whose sizes follow from data. Of the compiled program the loss is eager.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import tracekit as tk
from predictors import load_gpu
from sample_traces import workloads
from sample_traces.record import RECORDED
from tests.validation.studies.whole_jobs.step_energy import read_steps
from tests.validation.study import MEASURED, SUMMARY_HEADINGS, Result, format_table, summarize_results
from tracekit.capturing.optimizers import build_fused_call
from tracekit.capturing.program import CapturedProgram, capture
from tracekit.capturing.steps import predict_program
from tracekit.prediction import Prediction
from tracekit.run import prepare_run

INPUTS = ()
LEFT_OUT = ("llama_decode_graph", "moe_train")
COMPILED = "gpt2_train_compiled"
FAMILIES = (workloads.vision, workloads.language, workloads.recommender, workloads.diffusion)
"""Modules of the programs, in each of which ``half`` is the context of mixed precision."""
HEADINGS = (
    "program", "GPU", "kernels", "recorded", "GPU time", "predicted", "error", "step", "predicted (90 % interval)",
    "error",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A captured step beside the recorded one; times in milliseconds."""

    program: str
    kernels: int
    recorded_kernels: float
    busy_ms: float
    step_ms: float
    predicted: Prediction

    @property
    def errors(self) -> tuple[float, float]:
        """Return the errors of the GPU's time and of the step, in percent."""
        found = (
            self.predicted.step.kernel_time_us / 1e3 / self.busy_ms,
            self.predicted.step.step_time_us / 1e3 / self.step_ms,
        )
        return 100 * (found[0] - 1), 100 * (found[1] - 1)

    @property
    def is_inside(self) -> bool:
        """Return whether the interval holds the step."""
        return self.predicted.low_us <= 1e3 * self.step_ms <= self.predicted.high_us

    @property
    def cells(self) -> tuple[str, ...]:
        """Return a row of the table."""
        one, (busy, step) = self.predicted, self.errors
        return (
            *(self.program, one.gpu, f"{self.kernels}", f"{self.recorded_kernels:.0f}"),
            *(
                f"{self.busy_ms:.3g} ms",
                f"{one.step.kernel_time_us / 1e3:.3g} ms",
                f"{busy:+.0f} %",
                f"{self.step_ms:.3g} ms",
            ),
            f"{one.step.step_time_us / 1e3:.3g} ms ({one.low_us / 1e3:.3g}–{one.high_us / 1e3:.3g})",
            f"{step:+.0f} %",
        )


def run() -> str:
    """Return a row for each step, and what they come to."""
    outcomes = list(predict_steps())
    steps = [Result("step", one.errors[1], one.is_inside) for one in outcomes]
    busy = f"{median(abs(one.errors[0]) for one in outcomes):.0f} %"
    return "\n".join(
        (
            "# Programs captured without a GPU\n",
            format_table(HEADINGS, (one.cells for one in outcomes)),
            format_table(SUMMARY_HEADINGS, [summarize_results("steps", steps)]),
            f"The GPU's time is off by {busy} in the median.\n",
        )
    )


def predict_steps() -> Iterator[Outcome]:
    """Yield each program's step on each GPU."""
    for name, make in workloads.WORKLOADS.items():
        if name in LEFT_OUT:
            continue
        program = capture_workload(name, make)
        for folder in sorted(MEASURED.iterdir()):
            trace, step = RECORDED / f"{folder.name}_{name}.json.gz", read_steps(folder).get(name)
            if step and trace.exists():
                run = prepare_run(tk.load(trace))
                count = run.kernels.filter(run.is_in_chosen_steps).height / run.measured_step.steps
                (found,) = predict_program(program, [load_gpu(folder.name)])
                busy_ms = run.measured_step.kernel_time_us / 1e3
                predicted = found.prediction
                yield Outcome(name, predicted.kernels.height, count, busy_ms, step["held_ms"], predicted)


class NotedAdamW:
    """Optimizer that notes its parameters, whose fused update is added to the step."""

    noted: Sequence[Tensor] = ()

    def __init__(self, parameters: Any, **options: Any) -> None:
        del options
        type(self).noted = list(parameters)

    def zero_grad(self, **options: Any) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do nothing."""


def capture_workload(name: str, make: workloads.Maker) -> CapturedProgram:
    """Capture a program's step, with a number for what it reads back."""
    halves: list[str] = []

    def note_half(device: str) -> AbstractContextManager[None]:
        halves.append(device)
        return nullcontext()

    NotedAdamW.noted = ()
    with ExitStack() as patches:
        for module in FAMILIES:
            if hasattr(module, "half"):
                patches.enter_context(patch.object(module, "half", note_half))
        patches.enter_context(patch.object(Tensor, "item", lambda self: 1.0))
        patches.enter_context(patch.object(torch.optim, "AdamW", NotedAdamW))
        patches.enter_context(patch.object(torch, "inference_mode", torch.no_grad))
        with torch.device("meta"):
            step = make("meta", False)
        program = capture(step, training=True, autocast="bf16" if halves else None, name=name)
    if name == COMPILED:
        program = program.fuse_calls(find_loss(program))
    if not NotedAdamW.noted:
        return program
    return program.add_calls([build_fused_call("adamw", NotedAdamW.noted)])


def find_loss(program: CapturedProgram) -> range:
    """Return the places of the calls behind the last product of the forward pass, up to the next one."""
    products = [place for place, call in enumerate(program.calls) if "gemm" in call.kernels[0]]
    forward = max(place for place in products if not program.calls[place].is_backward)
    return range(forward + 1, min(place for place in products if place > forward))
