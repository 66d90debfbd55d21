"""Recordings that began while the GPU was busy with earlier work.

The first kernel of a stream in such a trace starts long after its launch call returned, and the GPU does nothing else.
Its work before that isn't recorded, and would stay as a constant in every prediction::

    CPU   |launch 1|launch 2|launch 3| ...
    GPU    ....... work from before the recording .......|= kernel 1 =|= kernel 2 =| ...
                                                         ^ the step begins here
"""

import numpy as np

from tracekit.arrays import NO_NUMBER, number_pairs
from tracekit.rules import Rule, RuleNames
from tracekit.trace import RankTrace

RULE = Rule(
    "busy-start",
    "A first step begins at the first kernel of its stream that starts long after its launch returned.",
    "vllm_piecewise_graph_execution (149 of 308 ms), vllm_decode_full_graph (7.8 of 19 ms), and SGLang's Qwen3 on an "
    "MI300X, where a copy waits for 463 of 474 ms.",
)
MIN_WAIT_NS = 1_000_000
MIN_WAIT_FRACTION = 0.05
"""Shorter waits, absolute or as a fraction of the GPU's recorded time, are launch latency or a first launch's load."""
MAX_EARLIER_FRACTION = 0.01
"""Largest part of the GPU's work that may have run before, on streams that weren't busy."""


def find_busy_start(trace: RankTrace, without: RuleNames, since_ns: int | None = None) -> tuple[int, int] | None:
    """Return the start of the delayed kernel, and how long after its launch, and after all earlier work, that is.

    Args:
        trace: The trace.
        without: Inference rules that are off.
        since_ns: Start of the first step, whose kernels count; ``None`` for the trace's first activity.

    Returns:
        ``None`` without such a wait, or if the rule is off.
    """
    if not RULE.is_on(without) or trace.activities.is_empty():
        return None
    start, length = (trace.activities[name].to_numpy() for name in ("ts_ns", "dur_ns"))
    (stream,) = number_pairs((trace.activities,), "device", "stream")
    earlier = (np.cumsum(length) - length) / max(length.sum(), 1)
    first = np.unique(stream, return_index=True)[1]
    rows = first[(trace.launches.row[first] >= 0) & (earlier[first] <= MAX_EARLIER_FRACTION)]
    call, until = trace.launches.row[rows], start + length
    called = trace.calls["ts_ns"].to_numpy()[call]
    ended = called + trace.calls["dur_ns"].to_numpy()[call]
    busy_until = np.maximum.accumulate(np.append(NO_NUMBER, until))[rows]
    waited = start[rows] - np.maximum(ended, busy_until)
    long = waited > np.maximum(MIN_WAIT_NS, MIN_WAIT_FRACTION * (until.max() - ended))
    found = np.flatnonzero(long & (called >= (NO_NUMBER if since_ns is None else since_ns)))
    if not found.size:
        return None
    last = found[start[rows[found]].argmax()]
    return int(start[rows[last]]), int(waited[last])
