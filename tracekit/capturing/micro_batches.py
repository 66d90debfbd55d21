"""Repeat the passes of a captured step: the micro-batches between two updates of the parameters.

A capture runs two of them. The second, which adds to gradients that are already there, stands for all that follow::

    captured    pass 1 | pass 2 | update
    repeated    pass 1 | pass 2 | pass 2 | pass 2 | update
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tracekit.arrays import Ints
from tracekit.errors import CaptureError
from tracekit.ingest.event_decoder import disable_garbage_collection
from tracekit.messages import models as messages

if TYPE_CHECKING:
    from tracekit.capturing.calls import OpProfile
    from tracekit.capturing.program import CapturedProgram

CAPTURED_PASSES = 2
"""The passes that differ: the first makes gradients, the others add to them."""
MAX_KERNELS = 400_000
"""Of a step. Its trace takes about 4 KB of memory for each while it is built."""
SEQUENCE = "Sequence number"
"""What the profiler numbers autograd's nodes by, so that a backward op finds its forward op."""
NO_SEQUENCE = 1 << 62
"""Least number that stands for none, which the profiler writes as the largest of 64 bits."""

Item = TypeVar("Item")


@disable_garbage_collection()
def repeat_last_pass(program: "CapturedProgram", passes: int) -> "CapturedProgram":
    """Repeat a program's last pass until it has as many.

    Raises:
        CaptureError: These would be too many kernels.
    """
    profile, times = program.profile, passes - len(program.profile.pass_ends_us)
    if times <= 0:
        return program
    begin_us, end_us = profile.pass_ends_us[-2:]
    marks = slice(*(bisect_left(profile.marks_us, us) for us in (begin_us, end_us)))
    starts = [event["ts"] for event in profile.events]
    events = slice(*(bisect_left(starts, us) for us in (begin_us, end_us)))
    kernels = sum(len(call.kernels) for call in program.calls[marks])
    if kernels * passes > MAX_KERNELS:
        raise CaptureError(messages.MICRO_BATCHES_MANY(passes=passes, kernels=kernels, most=MAX_KERNELS // kernels))
    period_us, width = end_us - begin_us, events.stop - events.start
    repeated = replace(
        profile,
        events=_repeat_events(profile, events, times, period_us),
        marks_us=[us + number * period_us for number, us in _repeat(profile.marks_us, marks, times)],
        launched_from=[
            place + number * width if place >= 0 else place
            for number, place in _repeat(profile.launched_from, marks, times)
        ],
        pass_ends_us=[*profile.pass_ends_us, *(end_us + (number + 1) * period_us for number in range(times))],
    )
    calls = tuple(call for _, call in _repeat(program.calls, marks, times))
    return replace(program, calls=calls, profile=repeated)


def keep_unlike_passes(program: "CapturedProgram") -> "tuple[CapturedProgram, Ints]":
    """Return a program without the passes that repeat its second, and the place there of each of its calls."""
    profile = program.profile
    places = np.arange(len(program.calls))
    if len(profile.pass_ends_us) <= CAPTURED_PASSES:
        return program, places
    unlike = profile.pass_ends_us[CAPTURED_PASSES - 2 : CAPTURED_PASSES]
    begin, end, last = (bisect_left(profile.marks_us, us) for us in (*unlike, profile.pass_ends_us[-1]))
    starts = [event["ts"] for event in profile.events]
    stop, behind = (bisect_left(starts, us) for us in (unlike[1], profile.pass_ends_us[-1]))
    kept = replace(
        profile,
        events=[*profile.events[:stop], *profile.events[behind:]],
        marks_us=[*profile.marks_us[:end], *profile.marks_us[last:]],
        launched_from=[
            *profile.launched_from[:end],
            *(place - behind + stop if place >= 0 else place for place in profile.launched_from[last:]),
        ],
        pass_ends_us=profile.pass_ends_us[:CAPTURED_PASSES],
    )
    places[end:last] = begin + (places[end:last] - end) % (end - begin)
    places[last:] -= last - end
    return replace(program, calls=(*program.calls[:end], *program.calls[last:]), profile=kept), places


def _repeat(items: Sequence[Item], part: slice, times: int) -> Iterator[tuple[int, Item]]:
    """Yield items of which a part is repeated, each with the number of its repetition; what follows has the last."""
    yield from ((0, one) for one in items[: part.stop])
    for number in range(1, times + 1):
        yield from ((number, one) for one in items[part])
    yield from ((times, one) for one in items[part.stop :])


def _repeat_events(profile: "OpProfile", part: slice, times: int, period_us: float) -> list[dict[str, Any]]:
    events, numbers = profile.events, [*map(get_sequence, profile.events)]
    known = [one for one in numbers[part] if one is not None]
    step = max(known) - min(known) + 1 if known else 0
    found = events[: part.stop]
    for copy in range(1, times + 1):
        found += _move_events(events[part], numbers[part], copy * period_us, copy * step)
    return found + _move_events(events[part.stop :], numbers[part.stop :], times * period_us, times * step)


def _move_events(
    events: list[dict[str, Any]], numbers: list[int | None], by_us: float, by: int
) -> list[dict[str, Any]]:
    """Move events in time, and in the numbers of autograd's nodes."""
    return [
        {**event, "ts": event["ts"] + by_us}
        if number is None
        else {**event, "ts": event["ts"] + by_us, "args": {**event["args"], SEQUENCE: number + by}}
        for event, number in zip(events, numbers, strict=True)
    ]


def get_sequence(event: dict[str, Any]) -> int | None:
    """Return the number of the node of autograd that an event belongs to; None without one."""
    number = event["args"].get(SEQUENCE)
    return number if number is not None and 0 <= number < NO_SEQUENCE else None
