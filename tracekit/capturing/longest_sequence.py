"""Find the longest sequences of a config with which a job fits on the targets that a request names."""

from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING

from predictors import Gpu, load_gpu
from tracekit.capturing.program import LONG_US, CapturedProgram
from tracekit.capturing.steps import TOKENS_STEP, NamedProgram
from tracekit.capturing.timed_trace import REFERENCE_GPU
from tracekit.capturing.timeline import build_trace, describe_capture
from tracekit.comm.cluster import USABLE_MEMORY_FRACTION
from tracekit.errors import CaptureError, RequestError
from tracekit.messages import models as messages
from tracekit.parallelism.layout import Layout, LayoutRequest, apply_request
from tracekit.prediction.job import WholeJob
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.targets import resolve_targets
from tracekit.run import prepare_run

if TYPE_CHECKING:
    from tracekit.request.options import ExportRequest

FIRST_GUESS, GROWTH, MAX_LINES = 32, 4, 8
"""The first number of 64 tokens that is tried, by what it grows, and the tries from which on the range is halved."""


def find_longest_sequence(program: NamedProgram, batch: int | None, request: "ExportRequest") -> int:
    """Find the most tokens of a sequence, a multiple of 64, with which the job surely fits on all targets.

    Args:
        program: The program.
        batch: Its batch; None for its own.
        request: The targets and the layout.

    Raises:
        RequestError: There is no target, or the program is no config with positions.
        CaptureError: Not even the shortest sequence fits, or what the program holds isn't known.
    """
    request.require_target()
    if program.dlrm or program.max_tokens is None:
        raise RequestError(messages.SEQ_MAX_OF_CONFIG())
    most = max(program.max_tokens // TOKENS_STEP, 1)
    jobs: dict[int, WholeJob] = {}

    def find_job(steps: int) -> WholeJob:
        if steps not in jobs:
            jobs[steps] = _build_job(program.capture_batch(batch, TOKENS_STEP * steps))
        return jobs[steps]

    found = []
    targets = resolve_targets(request.gpus, request.clusters)
    for gpu in {one.gpu.gpu.slug: one.gpu.gpu for one in targets}.values():
        measure = _measure_on(gpu, replace(request.layout, batch=None), find_job)
        longest = find_most(measure, USABLE_MEMORY_FRACTION * gpu.memory_bytes, most)
        if not longest:
            raise CaptureError(messages.SEQUENCE_FITS_NOWHERE(gpu=gpu.slug, least_bytes=measure(1)))
        found.append(TOKENS_STEP * longest)
    return min(found)


def find_most(measure: Callable[[int], float], room: float, most: int) -> int:
    """Find the largest number up to ``most`` whose measure, which grows with it, has room; 0 if not even 1 has.

    Each guess lies on the line through the two nearest measures, as what tensors hold is linear but for its begin.

    Args:
        measure: Measures a number, which takes seconds.
        room: The limit.
        most: The largest number that is tried.
    """
    known: dict[int, float] = {}
    fits, fails, guess = 0, most + 1, min(FIRST_GUESS, most)
    while fails - fits > 1:
        known[guess] = measure(guess)
        fits, fails = (guess, fails) if known[guess] <= room else (fits, guess)
        first, second = sorted(known, key=lambda one: abs(known[one] - room))[:2] if len(known) > 1 else (guess, guess)
        if first != second and known[first] != known[second]:
            wanted = first + (room - known[first]) * (first - second) / (known[first] - known[second])
        else:
            wanted = guess * GROWTH if fails > most else (fits + fails) / 2
        is_slow = len(known) > MAX_LINES
        guess = (fits + fails) // 2 if is_slow else min(max(int(wanted), fits + 1), fails - 1)
    return fits


def _measure_on(gpu: Gpu, change: LayoutRequest, find_job: Callable[[int], WholeJob]) -> Callable[[int], int]:
    """Return the function that measures what a rank on a GPU holds at most, by the steps of a sequence."""

    def measure(steps: int) -> int:
        fit = _judge(find_job(steps), gpu, change)
        if fit.max_bytes is None:
            raise CaptureError(messages.SEQ_MAX_UNKNOWN(gpu=gpu.slug, reason=fit.reason))
        return int(fit.max_bytes)

    return measure


def _judge(job: WholeJob, gpu: Gpu, change: LayoutRequest) -> MemoryFit:
    old = Layout()
    new = apply_request(old, change)
    return job.judge_memory(gpu, None if new == old else (old, new))


def _build_job(program: CapturedProgram) -> WholeJob:
    """Build the job of a captured program, without predicted times."""
    builder, gpu = build_trace(program.calls, repeat(LONG_US), 1.0, program.profile), load_gpu(REFERENCE_GPU)
    describe_capture(builder, replace(program.facts, gpu=gpu.slug), gpu, program.name)
    run = prepare_run(builder.load(stacks=True))
    return WholeJob(run, run.program, Layout(), None)
