"""Repeat something for some time, as it runs in a long job: with warm clocks, at the board's power limit."""

import statistics
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

IN_FLIGHT = 8
"""Repetitions that the CPU is ahead of the GPU."""
FIRST = 5
"""Repetitions that count as the first ones."""
CURVE_POINTS = 120


def hold(repeat: Callable[[], Any], seconds: float, *, calls: int = 1) -> dict[str, Any]:
    """Repeat something for some time.

    Args:
        repeat: What is repeated.
        seconds: For how long.
        calls: Calls of a kernel in each repetition; times are of one call.

    Returns:
        ``first_us`` (the median of the first repetitions), ``held_us`` (of the second half), ``begin_s`` and ``end_s``
        by the machine's clock, ``repetitions``, and ``curve``: points of seconds since the beginning and microseconds.
    """
    begin_s = time.time()
    ends_s, times_us = (_time_on_cpu if not torch.cuda.is_available() else _time_on_gpu)(repeat, seconds)
    held = [us / calls for us in times_us]
    return {
        "first_us": round(statistics.median(held[:FIRST]), 4),
        "held_us": round(statistics.median(held[len(held) // 2 :]), 4),
        "begin_s": round(begin_s, 3),
        "end_s": round(time.time(), 3),
        "repetitions": len(held),
        "curve": _thin(ends_s, held),
    }


def _time_on_gpu(repeat: Callable[[], Any], seconds: float) -> tuple[list[float], list[float]]:
    torch.cuda.synchronize()
    marks = [_mark()]
    waiting = deque(marks)
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(marks) <= FIRST:
        repeat()
        marks.append(_mark())
        waiting.append(marks[-1])
        if len(waiting) > IN_FLIGHT:
            waiting.popleft().synchronize()
    marks[-1].synchronize()
    ends_s = [1e-3 * marks[0].elapsed_time(mark) for mark in marks[1:]]
    return ends_s, [1e3 * before.elapsed_time(after) for before, after in pairwise(marks)]


def _mark() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _time_on_cpu(repeat: Callable[[], Any], seconds: float) -> tuple[list[float], list[float]]:
    moments = [time.perf_counter()]
    while moments[-1] - moments[0] < seconds or len(moments) <= FIRST:
        repeat()
        moments.append(time.perf_counter())
    times_us = [1e6 * (after - before) for before, after in pairwise(moments)]
    return [moment - moments[0] for moment in moments[1:]], times_us


def _thin(ends_s: list[float], times_us: list[float]) -> list[list[float]]:
    """Return medians of neighbours, so that a curve has few points."""
    width = -(-len(ends_s) // CURVE_POINTS)
    parts = [slice(at, at + width) for at in range(0, len(ends_s), width)]
    return [[round(ends_s[part][-1], 3), round(statistics.median(times_us[part]), 3)] for part in parts]
