"""The stages of a run, in order: the cold GPU first, then what heats it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from predictors import microbench
from sample_traces.record import name_gpu, record_step
from sample_traces.workloads import REBUILT, WORKLOADS, Maker
from tests.validation.on_gpu.hold import hold
from tests.validation.on_gpu.lookups import measure_lookups
from tests.validation.on_gpu.power_caps import measure_power_caps
from tests.validation.on_gpu.profiled import measure_profiled_us
from tests.validation.on_gpu.session import Session, Stage

HEAT_S = 60.0
HELD_STEP_S = 4.0
HELD_KERNEL_S = 0.5
HEAT_EDGE = 8192
"""Rows, columns and depth of the GEMM that heats the GPU."""
SLOWED = ("gpt2_train", "bert_inference")
"""Recorded once more beside a busy loop on the same core."""


def measure_bench(session: Session) -> None:
    """Measure the kernels of `tracekit calibrate --bench` on the cold GPU, by events and by the profiler."""
    profiled: list[float] = []

    def timer(call: Callable[[], Any]) -> tuple[float, float]:
        measured = microbench.measure_us(call)
        profiled.append(measure_profiled_us(call))
        return measured

    result = microbench.measure(microbench.generate_cases("cuda", list_precisions()), timer)
    rows = [row | {"profiled_us": round(us, 3)} for row, us in zip(result["kernels"], profiled, strict=True)]
    samples = session.folder / "samples"
    samples.mkdir(exist_ok=True)
    table = {"format": microbench.FORMAT, **microbench.describe_machine(), **result, "kernels": rows}
    (samples / "bench.json").write_text(json.dumps(table, indent=1) + "\n")


def record_samples(session: Session) -> None:
    """Record each workload's step, then hold it without the profiler."""
    folder = session.folder / "samples"
    results = session.run_each(
        {name: partial(record_and_hold, session, make, folder, name) for name, make in WORKLOADS.items()}
    )
    session.write("steps.json", results)


def record_public_jobs(session: Session) -> None:
    """Record the jobs of public traces likewise."""
    folder = session.folder / "samples"
    results = session.run_each(
        {name: partial(record_and_hold, session, make, folder, name) for name, make in REBUILT.items()}
    )
    session.write("public_steps.json", results)


def record_and_hold(session: Session, make: Maker, folder: Path, name: str) -> dict[str, Any]:
    """Record a step, hold it, and say how long it takes."""
    step = make(session.device, session.is_small)
    path = record_step(step, folder, f"{name_gpu()}_{name}")
    held = hold(step, HELD_STEP_S / session.shorten)
    session.print_progress(
        f"{name}: {held['first_us'] / 1e3:.3g} -> {held['held_us'] / 1e3:.3g} ms, {path.stat().st_size / 1e3:.0f} kB"
    )
    return held


def record_slowed(session: Session) -> None:
    """Record some samples with half a core: a host that is half as fast."""
    cpu = min(os.sched_getaffinity(0))
    busy = subprocess.Popen(
        [sys.executable, "-c", "while True: pass"], preexec_fn=lambda: os.sched_setaffinity(0, {cpu})
    )
    try:
        command = [sys.executable, "-m", "sample_traces.record", str(session.folder / "samples" / "slow"), *SLOWED]
        subprocess.run(command, check=True, timeout=240, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    finally:
        busy.kill()


def heat(session: Session) -> None:
    """Hold a large GEMM for a minute."""
    edge = 64 if session.is_small else HEAT_EDGE
    dtype = torch.float16 if list_precisions()[0] == "fp16" else torch.bfloat16
    a, b = torch.randn(2, edge, edge, device=session.device, dtype=dtype)
    held = hold(lambda: a @ b, HEAT_S / session.shorten)
    session.write("heat.json", {"m": edge, "n": edge, "k": edge, "dtype": str(dtype), **held})


def hold_kernels(session: Session) -> None:
    """Hold each kernel of the bench on the hot GPU."""
    rows: list[dict[str, Any]] = []

    def timer(call: Callable[[], Any]) -> tuple[float, float]:
        graph, calls = microbench.capture_calls(call)
        held = hold(graph.replay, HELD_KERNEL_S / session.shorten, calls=calls)
        rows.append({key: value for key, value in held.items() if key != "curve"})
        return held["held_us"], 0.0

    result = microbench.measure(microbench.generate_cases("cuda", list_precisions()), timer)
    kernels = [row | held for row, held in zip(result["kernels"], rows, strict=True)]
    session.write("kernels.json", {**microbench.describe_machine(), "kernels": kernels})


def list_precisions() -> list[str]:
    """Return the number formats of this machine's GPU, the usual one first."""
    if not torch.cuda.is_available():
        return ["bf16", "fp32"]
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    return microbench.list_precisions(gpu.major, gpu.minor, torch.version.hip is not None)


ON_CPU = ("samples", "heat")
"""Stages that need no GPU."""
STAGES: dict[str, Stage] = {
    "bench": measure_bench,
    "samples": record_samples,
    "heat": heat,
    "kernels": hold_kernels,
    "slow": record_slowed,
    "lookups": measure_lookups,
    "public": record_public_jobs,
    "power-caps": measure_power_caps,
}
