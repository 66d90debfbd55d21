"""Measure this machine's host by training steps so small that Python and PyTorch's dispatch are all that they take."""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracekit.errors import CalibrationError
from tracekit.messages import requests as messages

WARM_UP_SECONDS, BLOCK_SECONDS, BLOCKS = 5.0, 0.5, 20
WIDTH, TOKENS, HEADS, LAYERS = 8, 4, 2, 4


@dataclass(frozen=True, slots=True)
class HostBench:
    """How fast a host is at such steps; only the ratio of two machines with the same PyTorch means anything.

    Attributes:
        steps_per_s: Training steps of a tiny transformer a second, on one thread, the median of some blocks.
        spread_pct: Median deviation of the blocks, in percent.
    """

    steps_per_s: float
    spread_pct: float
    torch: str
    python: str


def import_torch() -> Any:
    """Import the PyTorch that is measured with.

    Raises:
        CalibrationError: It isn't installed.
    """
    try:
        import torch
    except ImportError as error:
        raise CalibrationError(messages.HOST_BENCH_NEEDS_TORCH()) from error
    return torch


def bench_host(clock: Callable[[], float] = time.perf_counter) -> HostBench:
    """Measure this machine's host in a quarter of a minute, without a GPU.

    ``clock`` returns seconds.

    Raises:
        CalibrationError: PyTorch isn't installed.
    """
    torch = import_torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = _build_step(torch)
        _count_steps(step, WARM_UP_SECONDS, clock)
        rates = [_count_steps(step, BLOCK_SECONDS, clock) for _ in range(BLOCKS)]
    finally:
        torch.set_num_threads(threads)
    rate = statistics.median(rates)
    spread = statistics.median(abs(one - rate) for one in rates)
    return HostBench(rate, 100 * spread / rate, torch.__version__, platform.python_version())


def _count_steps(step: Callable[[], None], seconds: float, clock: Callable[[], float]) -> float:
    """Return the steps a second over some seconds."""
    start, steps = clock(), 0
    while (passed := clock() - start) < seconds or not steps:
        step()
        steps += 1
    return steps / passed


def _build_step(torch: Any) -> Callable[[], None]:
    """Build a function that runs a forward and a backward pass."""
    functional = torch.nn.functional
    tokens = torch.randn(2, TOKENS, WIDTH)
    layers = [(torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)) for _ in range(LAYERS)]

    def run_step() -> None:
        x = tokens
        for project, out in layers:
            heads = project(functional.layer_norm(x, (WIDTH,))).view(2, TOKENS, 3, HEADS, WIDTH // HEADS)
            query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
            weights = functional.softmax(query @ key.transpose(-2, -1), dim=-1)
            x = x + functional.gelu(out((weights @ value).transpose(1, 2).reshape(2, TOKENS, WIDTH)))
        x.sum().backward()

    return run_step
