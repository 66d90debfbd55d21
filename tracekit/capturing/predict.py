"""Predict a captured step on GPUs: kernels by their laws, launches by the CPU that is usual beside the GPU."""

from collections.abc import Sequence
from math import exp, hypot, log

import numpy as np
import polars as pl

from predictors import Batch, Gpu, resolve_gpu
from tracekit.arrays import Floats
from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.steps import CapturedStep
from tracekit.hosts import find_usual_host
from tracekit.prediction.energy import compute_idle_w
from tracekit.prediction.intervals import compute_interval_times, number_repeats
from tracekit.prediction.memory import USABLE_MEMORY_FRACTION
from tracekit.prediction.sustained_clock import hold_clock

HOST_US_PER_KERNEL = 39.0
"""Time of the CPU for each captured kernel of an eager step, on the reference host (tracekit/hosts): the median of four
programs that the CPU paced on an H100 and an H200, without the profiler (predictors/training/measured). It holds what
the CPU does for views and casts, and for the kernels that a capture doesn't see."""
HOST_HALF_WIDTH = 0.5
"""Half-width, as a logarithm, of its 90 % interval: three of these programs took 32 to 59 us, a recommender 84 and
113."""
LAUNCH_US = 5.0
"""From a launch to its kernel on an idle GPU."""


def predict_captured(
    program: CapturedProgram, gpus: Sequence[str], *, cuda_graph: bool = False
) -> tuple[CapturedStep, ...]:
    """Predict a captured step on each of some GPUs.

    Args:
        program: From :func:`~tracekit.capturing.program.capture`.
        gpus: Names, in any spelling.
        cuda_graph: Whether a CUDA graph launches the kernels, so that the CPU has no part in the time.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
    """
    batch = Batch(program.kernels)
    return tuple(_predict_step(program, batch, resolve_gpu(gpu).gpu, cuda_graph) for gpu in gpus)


def _predict_step(program: CapturedProgram, batch: Batch, gpu: Gpu, cuda_graph: bool) -> CapturedStep:
    alone = program.kernels.select("family", "dtype").hstack(batch.on(gpu))
    unknown_pct = 100 * alone["time_us"].null_count() / alone.height
    kernels = alone.with_columns(pl.col("time_us", "low_us", "high_us").fill_null(0.0))
    host = _HostPace(gpu, cuda_graph)
    clocked = hold_clock(kernels, gpu, run_in_order(kernels["time_us"].to_numpy(), host.likely_us))
    kernels = clocked.kernels
    everything = np.ones(kernels.height, dtype=np.bool_)
    times = compute_interval_times(kernels, number_repeats(program.kernels), everything)
    paces = (host.likely_us, host.low_us, host.high_us)
    step_us, low_us, high_us = (run_in_order(us, pace) for us, pace in zip(times, paces, strict=True))
    kernels_us = float(times[0].sum())
    idle_w = compute_idle_w(gpu)
    power_w = idle_w + float(((kernels["power_w"].fill_null(idle_w) - idle_w) * kernels["time_us"]).sum()) / step_us
    families = kernels.group_by("family").agg(pl.col("time_us").sum()).sort("time_us", descending=True)
    return CapturedStep(
        gpu=gpu.slug,
        step_us=step_us,
        low_us=min(low_us, step_us),
        high_us=max(high_us, step_us),
        kernels_us=kernels_us,
        idle_us=max(step_us - kernels_us, 0.0),
        unknown_pct=unknown_pct,
        clock_pct=100 / clocked.slowdown,
        joules=power_w * step_us / 1e6,
        power_w=power_w,
        batch=program.batch,
        tokens_per_s=1e6 * program.tokens / step_us if program.tokens else None,
        peak_bytes=program.peak_bytes,
        has_room=program.peak_bytes <= USABLE_MEMORY_FRACTION * gpu.memory_bytes,
        families=tuple(families.iter_rows()),
    )


class _HostPace:
    """Time of the CPU for each kernel: the likely one and both ends of its interval."""

    def __init__(self, gpu: Gpu, cuda_graph: bool) -> None:
        usual = find_usual_host(gpu)
        reach = hypot(HOST_HALF_WIDTH, log(usual.high / usual.speed))
        self.likely_us = 0.0 if cuda_graph else HOST_US_PER_KERNEL / usual.speed
        self.low_us, self.high_us = (self.likely_us * exp(side * reach) for side in (-1, 1))


def run_in_order(times_us: Floats, launch_us: float) -> float:
    """Return how long kernels take that one stream runs in order, each once it is launched.

    A kernel starts when it is launched and the one before has ended. With ``before`` the time of all kernels before
    one, it ends no earlier than any launch, plus all kernels from that one on::

        launch   0    27    54    81
        GPU          [k0]  [----- k1 -----][k2][k3]

    Args:
        times_us: Times of the kernels.
        launch_us: Time of the CPU for each launch.
    """
    before = np.cumsum(times_us) - times_us
    launched = launch_us * np.arange(1, times_us.size + 1) + LAUNCH_US
    return float(np.max(launched - before, initial=0.0) + times_us.sum())
