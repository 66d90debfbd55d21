"""Load traces; a recording without GPU activity becomes a captured program."""

from importlib.util import find_spec
from typing import Any

from tracekit import ingest
from tracekit.errors import TraceError
from tracekit.ingest.companions import read_execution_text
from tracekit.ingest.execution_ops import read_execution_ops
from tracekit.ingest.source import STDIN, Inputs, expand_inputs, is_execution_trace
from tracekit.messages.traces import TRACE_OF_OTHER_TOOL, TRACE_WITHOUT_GPU
from tracekit.trace import RankTrace, Trace

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
    return load_captured(program) if program else None


def _read_host(inputs: Inputs, options: dict[str, Any]) -> RankTrace | None:
    """Read what a recording holds of the CPU; None for a file of another kind."""
    sources = expand_inputs(inputs).traces
    if len(sources) == 1 and is_execution_trace(sources[0]):
        return read_execution_ops(read_execution_text(sources[0]), sources[0].name)
    try:
        return ingest.load(inputs, **options, needs_gpu=False).ranks[0]
    except TraceError:
        return None
