"""Build the trace of a captured program: what a recording on some GPU would hold, with predicted times."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Protocol

import numpy as np
import polars as pl

from predictors import Gpu, resolve_gpu
from tracekit.arrays import Floats
from tracekit.capturing.micro_batches import keep_unlike_passes
from tracekit.capturing.program import LONG_US, CapturedProgram
from tracekit.capturing.timeline import build_trace, describe_capture
from tracekit.hosts import find_usual_host
from tracekit.ingest.event_decoder import disable_garbage_collection
from tracekit.models.captured import UNKNOWN_CAPTURED_US, CaptureFacts
from tracekit.models.lookups import IndexPattern
from tracekit.prediction.kernel_times import LAYOUT_CHANGE
from tracekit.prediction.predict_run import predict_on_gpus
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

REFERENCE_GPU = "h100-sxm"
"""GPU whose times a trace holds where none is named."""
HOST_US_PER_OP = 39.0
"""Time of the CPU for each captured op with one kernel in an eager step, on the reference host (tracekit/hosts): the
median of four programs that the CPU paced on an H100 and an H200, without the profiler (predictors/training/measured).
It holds what the CPU does for views and casts, and for the kernels that a capture doesn't see."""
GRAPH_US_PER_OP = 0.5
"""The same of a step that one CUDA graph launches: less than any kernel takes."""


@dataclass(frozen=True, slots=True)
class CaptureSetting:
    """What the times of a captured program depend on besides its GPU.

    Attributes:
        indices: How rows of embedding tables are looked up; None where nothing tells.
        calibrated: Whether the calibrations of this machine count.
        framework: The serving engine that runs it, with its release where that is known; None for PyTorch.
    """

    indices: IndexPattern | None = None
    calibrated: bool = False
    framework: str | None = None


DEFAULT_SETTING = CaptureSetting()


class TimeCorrection(Protocol):
    """What corrects the predicted times of a program's kernels on one GPU."""

    @property
    def gpu(self) -> Gpu:
        """The GPU."""

    def correct(self, program: CapturedProgram, times_us: Floats) -> tuple[CaptureFacts, Floats]:
        """Return the program's facts and the corrected times."""


def build_timed_trace(
    program: CapturedProgram,
    gpu: str = REFERENCE_GPU,
    *,
    cuda_graph: bool = False,
    measured: TimeCorrection | None = None,
    setting: CaptureSetting = DEFAULT_SETTING,
) -> TraceBuilder:
    """Build the trace that a recording of a captured program on a GPU would be, with predicted times.

    Args:
        program: The program.
        gpu: Name of the GPU, in any spelling.
        cuda_graph: Whether a CUDA graph launches the kernels, so that the CPU has no part in the time.
        measured: What a trace of the program tells of its times; then that trace's GPU counts.
        setting: What else its times depend on.

    Raises:
        PredictorError: The GPU is unknown or its name ambiguous.
    """
    there = measured.gpu if measured else resolve_gpu(gpu).gpu
    program = drop_layout_changes(program) if there.is_cpu else program
    host_us = GRAPH_US_PER_OP if cuda_graph or there.is_cpu else HOST_US_PER_OP / find_usual_host(there).speed
    facts, times_us = replace(program.facts, gpu=there.slug), predict_times(program, there, host_us, setting)
    if measured:
        facts, times_us = measured.correct(program, times_us)
    builder = build_trace(program.calls, times_us.tolist(), host_us, program.profile)
    describe_capture(builder, facts, there, program.name)
    return builder


@disable_garbage_collection()
def load_captured(
    program: CapturedProgram,
    gpu: str = REFERENCE_GPU,
    *,
    cuda_graph: bool = False,
    measured: TimeCorrection | None = None,
    setting: CaptureSetting = DEFAULT_SETTING,
) -> Trace:
    """Return the same as ``tracekit.load`` would; arguments and errors as for :func:`build_timed_trace`."""
    built = build_timed_trace(program, gpu, cuda_graph=cuda_graph, measured=measured, setting=setting)
    return built.load(stacks=True)


def drop_layout_changes(program: CapturedProgram) -> CapturedProgram:
    """Return a program without cuDNN's kernels that change how an image lies: oneDNN does that in its convolutions."""
    keep = [
        replace(call, kernels=tuple(n for n in call.kernels if not re.match(LAYOUT_CHANGE, n)))
        for call in program.calls
    ]
    return replace(program, calls=tuple(keep))


def predict_times(
    program: CapturedProgram, gpu: Gpu, host_us: float = HOST_US_PER_OP, setting: CaptureSetting = DEFAULT_SETTING
) -> Floats:
    """Predict the times of a program's kernels on a GPU, in microseconds.

    The first times are so long that no kernel is taken for faster than its arithmetic allows. The second are those of a
    step that takes the first: its power, and so its clock, follow from how busy it keeps the GPU.

    Micro-batches that repeat the second take its times.

    ``host_us`` is the time of the CPU for each op.
    """
    unlike, places = keep_unlike_passes(program)
    counts = np.array([len(call.kernels) for call in unlike.calls])
    unmeasured = CaptureSetting(framework=setting.framework)
    first = _predict_once(unlike, gpu, repeat(LONG_US, int(counts.sum())), 1.0, unmeasured)
    times = _predict_once(unlike, gpu, first.tolist(), host_us, setting)
    begins, repeated = (np.cumsum(counts) - counts)[places], counts[places]
    shifts = begins - (np.cumsum(repeated) - repeated)
    again: Floats = times[np.repeat(shifts, repeated) + np.arange(repeated.sum())]
    return again


def _predict_once(
    program: CapturedProgram, gpu: Gpu, times_us: Iterable[float], host_us: float, setting: CaptureSetting
) -> Floats:
    builder = build_trace(program.calls, times_us, host_us, program.profile)
    describe_capture(builder, replace(program.facts, gpu=gpu.slug), gpu, program.name)
    run = prepare_run(builder.load(), indices=setting.indices, framework=setting.framework)
    (predicted,) = predict_on_gpus(run, [gpu.slug], calibrated=setting.calibrated, scored=False)
    known = pl.when(pl.col("method") != "kept").then("time_us").otherwise(UNKNOWN_CAPTURED_US)
    times: Floats = predicted.kernels.select(known.alias("time_us"))["time_us"].to_numpy()
    return times
