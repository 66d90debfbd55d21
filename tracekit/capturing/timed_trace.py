"""Build the trace of a captured program: what a recording on some GPU would hold, with predicted times."""

from dataclasses import replace
from itertools import repeat
from typing import Protocol

import polars as pl

from predictors import Gpu, resolve_gpu
from tracekit.arrays import Floats
from tracekit.capture_facts import UNKNOWN_CAPTURED_US, CaptureFacts
from tracekit.capturing.program import LONG_US, CapturedProgram
from tracekit.capturing.timeline import build_trace, describe_capture
from tracekit.hosts import find_usual_host
from tracekit.prediction import predict
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
) -> TraceBuilder:
    """Build the trace that a recording of a captured program on a GPU would be, with predicted times.

    Args:
        program: The program.
        gpu: Name of the GPU, in any spelling.
        cuda_graph: Whether a CUDA graph launches the kernels, so that the CPU has no part in the time.
        measured: What a trace of the program tells of its times; then that trace's GPU counts.

    Raises:
        PredictorError: The GPU is unknown or its name ambiguous.
    """
    there = measured.gpu if measured else resolve_gpu(gpu).gpu
    host_us = GRAPH_US_PER_OP if cuda_graph else HOST_US_PER_OP / find_usual_host(there).speed
    facts, times_us = replace(program.facts, gpu=there.slug), predict_times(program, there)
    if measured:
        facts, times_us = measured.correct(program, times_us)
    builder = build_trace(program.calls, times_us.tolist(), host_us, program.profile)
    describe_capture(builder, facts, there, program.name)
    return builder


def load_captured(
    program: CapturedProgram,
    gpu: str = REFERENCE_GPU,
    *,
    cuda_graph: bool = False,
    measured: TimeCorrection | None = None,
) -> Trace:
    """Return the same as ``tracekit.load`` would; arguments and errors as for :func:`build_timed_trace`."""
    return build_timed_trace(program, gpu, cuda_graph=cuda_graph, measured=measured).load(stacks=True)


def predict_times(program: CapturedProgram, gpu: Gpu) -> Floats:
    """Predict the times of a program's kernels on a GPU, in microseconds."""
    kernels = sum(len(call.kernels) for call in program.calls)
    builder = build_trace(program.calls, repeat(LONG_US, kernels), 1.0, program.profile)
    describe_capture(builder, replace(program.facts, gpu=gpu.slug), gpu, program.name)
    trace = builder.load()
    (predicted,) = predict(prepare_run(trace), [gpu.slug], calibrated=False).targets
    known = pl.when(pl.col("method") != "kept").then("time_us").otherwise(UNKNOWN_CAPTURED_US)
    times: Floats = predicted.kernels.select(known.alias("time_us"))["time_us"].to_numpy()
    return times
