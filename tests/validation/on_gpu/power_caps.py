"""Measure a GEMM and a training step under power limits that were asked for; the limit is restored."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from sample_traces.workloads import WORKLOADS
from tests.validation.on_gpu.hold import hold
from tests.validation.on_gpu.session import Session

HELD_S = 10.0
EDGE = 8192


def measure_power_caps(session: Session) -> None:
    """Measure under each limit; none where none was asked for."""
    cases = {f"{cap_w:g}": partial(measure_under, session, cap_w) for cap_w in session.power_caps_w}
    if cases:
        session.write("power_caps.json", session.run_each(cases))


def measure_under(session: Session, cap_w: float) -> dict[str, Any]:
    """Hold a GEMM and a training step under a limit."""
    seconds = HELD_S / session.shorten
    with limit_power(cap_w):
        a, b = torch.randn(2, EDGE, EDGE, device=session.device, dtype=torch.bfloat16)
        step = WORKLOADS["llama_train"](session.device, session.is_small)
        return {"gemm": hold(lambda: a @ b, seconds), "llama_train": hold(step, seconds)}


@contextmanager
def limit_power(cap_w: float) -> Iterator[None]:
    """Set the first GPU's power limit, and restore it."""
    query = ("nvidia-smi", "--id=0", "--query-gpu=power.limit", "--format=csv,noheader,nounits")
    before_w = float(subprocess.run(query, capture_output=True, text=True, check=True).stdout)
    set_limit_w(cap_w)
    try:
        yield
    finally:
        set_limit_w(before_w)


def set_limit_w(watts: float) -> None:
    """Set the first GPU's power limit, which needs an administrator's rights."""
    subprocess.run(["nvidia-smi", "--id=0", f"--power-limit={watts:g}"], capture_output=True, text=True, check=True)
