"""Steps on this CPU: predicted from a program's code, and from a trace of it, against what they take.

Each program is recorded once, on one thread, and predicted at other batches, formats, lengths and with a backward
pass. Then these run. On a shared machine CPU time counts, of recordings too (`tests/validation/cpu_recording.py`).
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.validation.study import CPU_FILE, find_input, format_table
from tracekit.capturing.recordings import load_recording
from tracekit.request import PredictRequest, answers
from tracekit.request.program_options import ProgramOptions

INPUTS = (CPU_FILE,)
LARGER = 4
"""Times the batch of a recording."""
AS_RECORDED = "as recorded"


@dataclass(frozen=True)
class CpuStep:
    """A step that was predicted and measured, in microseconds.

    Attributes:
        change: What differs from the recording.
        by_law: Predicted from the code alone: likely, low and high.
        by_trace: Predicted with the recording.
        measured_us: What it took.
    """

    program: str
    change: str
    by_law: tuple[float, float, float]
    by_trace: tuple[float, float, float]
    measured_us: float


def predict_steps(names: Iterable[str], cpu: str) -> Iterator[CpuStep]:
    """Record programs on one thread of this CPU, predict what changes, and measure it."""
    import torch

    from tests.validation import cpu_programs
    from tests.validation.cpu_recording import build_step, measure_us, record

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                build, batch, longer = cpu_programs.PROGRAMS[name]
                step = build_step(build)
                step()
                path = record(step, Path(folder) / "cpu.json")
                for change, builder, size, asked in _list_changes(build, batch, longer):
                    run = build_step(lambda made=builder, size=size: made(size), **asked)
                    measured_us = measure_us(run)
                    by_law = _predict(builder, size, cpu, False, path, **asked)
                    is_same = change == AS_RECORDED
                    by_trace = (
                        _predict_recording(path, cpu) if is_same else _predict(builder, size, cpu, True, path, **asked)
                    )
                    yield CpuStep(name, change, by_law, by_trace, measured_us)
    finally:
        torch.set_num_threads(threads)


def _list_changes(
    build: Callable[..., Any], batch: int, longer: Callable[..., Any] | None
) -> Iterator[tuple[str, Callable[..., Any], int, dict[str, bool]]]:
    yield AS_RECORDED, build, batch, {}
    yield f"batch x {LARGER}", build, LARGER * batch, {}
    if longer is not None:
        yield "sequence x 2", longer, batch, {}
    yield "bf16", build, batch, {"bf16": True}
    yield "training", build, batch, {"train": True}


def _predict(
    build: Callable[..., Any], batch: int, cpu: str, trace: bool, path: Path, *, train: bool = False, bf16: bool = False
) -> tuple[float, float, float]:
    from tests.validation import cpu_programs

    program = ProgramOptions(
        measured=str(path) if trace else None,
        autocast="bf16" if bf16 else None,
        train=train,
        optimizer="sgd" if train else None,
    )
    request = PredictRequest(gpu=[cpu], source_gpu=cpu if trace else None, batch=batch)
    name = f"{cpu_programs.__file__}:{build.__name__}"
    return _ask(*program.capture_trace(name, request))


def _predict_recording(path: Path, cpu: str) -> tuple[float, float, float]:
    return _ask(load_recording(str(path), cache=False), PredictRequest(gpu=[cpu], source_gpu=cpu))


def _ask(trace: Any, request: PredictRequest) -> tuple[float, float, float]:
    found = answers.predict(answers.measure(trace, request), request).targets[0]
    return found.step.step_time_us, found.low_us, found.high_us


def summarise(steps: list[CpuStep], which: str) -> tuple[float, float]:
    """Return the mean error and the fraction inside, both in percent, of predictions ``by_law`` or ``by_trace``."""
    found = np.array([(*getattr(one, which), one.measured_us) for one in steps])
    errors = np.abs(found[:, 0] / found[:, 3] - 1)
    inside = (found[:, 1] <= found[:, 3]) & (found[:, 3] <= found[:, 2])
    return 100 * float(errors.mean()), 100 * float(inside.mean())


def run() -> str:
    """Return the table."""
    from tests.validation import cpu_programs

    steps = list(predict_steps(cpu_programs.PROGRAMS, f"{find_input(CPU_FILE)}"))
    rows = [
        (
            f"{one.program}, {one.change}",
            f"{one.measured_us / 1e3:.1f} ms",
            *(f"{100 * (which[0] / one.measured_us - 1):+.0f} %" for which in (one.by_law, one.by_trace)),
        )
        for one in steps
    ]
    means = [summarise(steps, which) for which in ("by_law", "by_trace")]
    rows.append(("**mean, without sign**", "", *(f"**{error:.1f} %**" for error, _ in means)))
    rows.append(("inside the 90 % interval", "", *(f"{inside:.0f} %" for _, inside in means)))
    table = format_table(("program", "measured", "from its code", "with a trace of it"), rows)
    told = "One thread, PyTorch's CPU build; the machine's file is `tracekit calibrate --cpu`'s.\n"
    return f"# Steps on a CPU\n\n{table}\n{told}"
