"""Read the ranks of a job for a command, or capture the program that is named instead."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from tracekit import ingest
from tracekit.capturing.program_names import is_program
from tracekit.capturing.recordings import load_recording
from tracekit.cli.config_file import SOURCE_GPU_KEY, read_config
from tracekit.cli.output import say
from tracekit.messages import ProgressCallback, requests
from tracekit.messages.requests import CONFIGURED_SOURCE_GPU
from tracekit.request.options import LayoutOptions, RunOptions, TargetOptions
from tracekit.request.program_options import ProgramOptions
from tracekit.trace import Trace

Asked = TypeVar("Asked", bound=RunOptions)


def read_traces(
    traces: Sequence[str],
    rank: int | None,
    no_cache: bool,
    memory: str | None,
    progress: ProgressCallback,
    stacks: bool = False,
) -> Trace:
    """Read the requested rank, by default all ranks.

    Args:
        traces: Paths and URIs from the command line.
        rank: The rank; ``None`` for all ranks.
        no_cache: Neither read nor write the cache of decoded traces.
        memory: Maximum size of the tables, such as ``2G``.
        progress: Function that shows the current stage.
        stacks: Also read Python calls.

    Raises:
        TracekitError: As ``tracekit.ingest.load``.
    """
    ranks: ingest.Ranks = None if rank is None else [rank]
    return load_recording(traces, ranks=ranks, cache=not no_cache, memory=memory, stacks=stacks, progress=progress)


def read_or_capture(
    traces: Sequence[str],
    request: Asked,
    program: ProgramOptions,
    rank: int | None,
    no_cache: bool,
    memory: str | None,
    progress: ProgressCallback,
    stacks: bool = False,
) -> tuple[Trace, Asked]:
    """Read the requested ranks, or capture the program that is named instead of traces.

    A program whose batch can be chosen is captured at the requested one.

    Args:
        traces: As for :func:`read_traces`; or one program, as ``FILE.py:FUNCTION`` or ``config.json``.
        request: What is asked of it.
        program: How a program is captured.
        rank: As for :func:`read_traces`, and so are the others.
        no_cache: Likewise.
        memory: Likewise.
        progress: Likewise.
        stacks: Likewise.

    Returns:
        The trace, and what is left to ask of it.

    Raises:
        TracekitError: As :func:`read_traces`; or the program can't be captured, or options of programs are given that
            a trace hasn't.
    """
    if not is_program(traces):
        program.refuse_without_program()
        trace = read_traces(traces, rank, no_cache, memory, progress, stacks)
        return trace, fill_source_gpu(trace, program.move_tables(request))
    from tracekit.capturing.named import capture_named
    from tracekit.capturing.timed_trace import CaptureSetting

    progress(requests.CAPTURING())
    batch = request.batch if isinstance(request, LayoutOptions) else None
    setting = CaptureSetting(request.index_pattern, isinstance(request, TargetOptions) and not request.no_calibration)
    trace, left = capture_named(traces[0], program.capture, batch, request.source_gpu, setting)
    return trace, replace(request, batch=left) if isinstance(request, LayoutOptions) else request


def fill_source_gpu(trace: Trace, request: Asked) -> Asked:
    """Return the request with the configured source GPU, if neither it nor the trace tells one; that is said."""
    if request.source_gpu is not None or ((device := trace.ranks[0].device) and device.name.strip()):
        return request
    config = read_config()
    gpu = config.values.get(SOURCE_GPU_KEY)
    if not isinstance(gpu, str):
        return request
    say(str(CONFIGURED_SOURCE_GPU(path=str(config.origins[SOURCE_GPU_KEY]), gpu=gpu)))
    return replace(request, source_gpu=gpu)
