"""What the profiler says of a call's kernels."""

from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

CALLS = 20
"""Calls under the profiler, after as many without."""


def measure_profiled_us(call: Callable[[], Any]) -> float:
    """Measure the microseconds of GPU work in one call by the profiler."""
    return sum(measure_kernels_us(call).values())


def measure_kernels_us(call: Callable[[], Any]) -> dict[str, float]:
    """Measure the microseconds of each kernel, by its name, in one call by the profiler."""
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    times_us: dict[str, float] = {}
    for event in recorded.events() or ():
        if event.device_type != DeviceType.CPU:
            times_us[event.name] = times_us.get(event.name, 0.0) + event.time_range.elapsed_us() / CALLS
    return times_us
