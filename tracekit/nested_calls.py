"""Find which call encloses another on the same thread."""

import numpy as np

from tracekit.arrays import Ints
from tracekit.compiled import compile_lazily

NO_CALLER = -1


def find_enclosing_calls(thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Find the innermost enclosing call and its depth; input ordered by thread and time, outer calls first."""
    outer, depths = np.full(start.size, NO_CALLER, dtype=np.int64), np.zeros(start.size, dtype=np.int64)
    _find_enclosing(start.size, thread, start, end, np.empty(start.size, dtype=np.int64), outer, depths)
    return outer, depths


@compile_lazily
def _find_enclosing(
    calls: int, thread: Ints, start: Ints, end: Ints, stack: Ints, outer: Ints, depths: Ints
) -> int:  # pragma: no cover - compiled
    depth = 0
    for call in range(calls):
        while depth > 0 and (thread[stack[depth - 1]] != thread[call] or end[stack[depth - 1]] <= start[call]):
            depth -= 1
        if depth > 0:
            outer[call] = stack[depth - 1]
        depths[call] = depth
        stack[depth] = call
        depth += 1
    return 0
