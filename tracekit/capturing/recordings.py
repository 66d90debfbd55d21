"""Load traces; a recording without GPU activity becomes a captured program, with the times of its CPU where asked."""

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from predictors import Gpu
from tracekit import ingest
from tracekit.errors import RequestError, TraceError
from tracekit.ingest.companions import read_execution_text
from tracekit.ingest.execution_ops import read_execution_ops
from tracekit.ingest.source import STDIN, Inputs, expand_inputs, is_execution_trace
from tracekit.messages import requests as messages
from tracekit.messages.traces import TRACE_OF_OTHER_TOOL, TRACE_WITHOUT_GPU
from tracekit.trace import RankTrace, Trace

if TYPE_CHECKING:
    from tracekit.capturing.program import CapturedProgram
    from tracekit.capturing.sharpen import MeasuredOps

CAPTURABLE = (TRACE_WITHOUT_GPU.code, TRACE_OF_OTHER_TOOL.code)


def load_recording(inputs: Inputs, **options: Any) -> Trace:
    """Load traces as :func:`tracekit.ingest.load` does.

    A recording without GPU activity, and an execution trace alone, are captured: their ops tell what a GPU would do.
    PyTorch is needed for that.

    Raises:
        TracekitError: The traces can't be loaded, or they have no GPU activity and their ops don't tell what a GPU
            would do.
    """
    try:
        return ingest.load(inputs, **options)
    except TraceError as error:
        # What comes through a pipe can't be read again.
        if error.code not in CAPTURABLE or find_spec("torch") is None or inputs in (STDIN, [STDIN]):
            raise
        captured = _capture(inputs, options)
        if captured is None:
            raise
        return captured


def _capture(inputs: Inputs, options: dict[str, Any]) -> Trace | None:
    """Capture what a recording holds of the CPU; None where that is nothing, or without shapes."""
    rank = _read_host(inputs, options)
    if rank is None or not rank.has_shapes:
        return None
    from tracekit.capturing.recorded_program import read_program
    from tracekit.capturing.timed_trace import load_captured

    program = read_program(rank)
    return replace(load_captured(program), recording=rank) if program else None


def put_on_cpu(trace: Trace, cpu: Gpu) -> Trace:
    """Return the trace of a recording with the times that its CPU took, which the recording doesn't name.

    Raises:
        RequestError: It is a GPU's trace.
    """
    from tracekit.capturing.timed_trace import load_captured

    program, measured = measure_recording(trace, cpu)
    return replace(load_captured(program, measured=measured), recording=trace.recording)


def measure_recording(trace: Trace, cpu: Gpu) -> "tuple[CapturedProgram, MeasuredOps]":
    """Return the program that a recording is of, and what its ops took on the CPU that ran it.

    Raises:
        RequestError: It is a GPU's trace.
    """
    if trace.recording is None:
        raise RequestError(messages.CPU_OF_GPU_TRACE(cpu=cpu.slug, path=trace.source))
    from tracekit.capturing.cpu_ops import measure_cpu_ops
    from tracekit.capturing.recorded_program import build_program, find_calls

    found = find_calls(trace.recording)
    program = build_program(trace.recording, found)
    assert program is not None
    return program, measure_cpu_ops(trace.recording, found, program, cpu)


def _read_host(inputs: Inputs, options: dict[str, Any]) -> RankTrace | None:
    """Read what a recording holds of the CPU; None for a file of another kind."""
    sources = expand_inputs(inputs).traces
    if len(sources) == 1 and is_execution_trace(sources[0]):
        return read_execution_ops(read_execution_text(sources[0]), sources[0].name)
    try:
        return ingest.load(inputs, **options, needs_gpu=False).ranks[0]
    except TraceError:
        return None
