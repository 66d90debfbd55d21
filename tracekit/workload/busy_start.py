"""Recordings that began while the GPU was busy with earlier work.

The first kernel of such a trace's first step starts long after its launch call returned. The GPU's work before it isn't
recorded, and would stay as a constant in every prediction::

    CPU   |launch 1|launch 2|launch 3| ...
    GPU    ....... work from before the recording .......|= kernel 1 =|= kernel 2 =| ...
                                                         ^ the step begins here
"""

import polars as pl

from tracekit.rules import Rule, RuleNames
from tracekit.trace import RankTrace
from tracekit.workload.owners import find_launching_calls

RULE = Rule(
    "busy-start",
    "A first step whose first kernel starts long after its launch returned begins at that kernel.",
    "vllm_piecewise_graph_execution (149 of 308 ms) and vllm_decode_full_graph (7.8 of 19 ms).",
)
MIN_WAIT_NS = 1_000_000
MIN_WAIT_FRACTION = 0.05
"""Shorter waits, absolute or as a fraction of the GPU's recorded time, are launch latency or a first launch's load."""


def find_busy_start(trace: RankTrace, without: RuleNames, since_ns: int | None = None) -> tuple[int, int] | None:
    """Return the start of the first kernel, and how long after its launch, and after all earlier work, that is.

    Args:
        trace: The trace.
        without: Inference rules that are off.
        since_ns: Start of the first step, whose first kernel counts; ``None`` for the trace's first activity.

    Returns:
        ``None`` without such a wait, or if the rule is off.
    """
    if not RULE.is_on(without):
        return None
    ends = trace.calls.select(ts_ns="ts_ns", ended=pl.col("ts_ns") + pl.col("dur_ns"))
    activities = trace.activities if since_ns is not None else trace.activities.head(1)
    call = find_launching_calls(activities, trace.calls)
    launched = activities.select("ts_ns", "dur_ns", called=ends["ts_ns"].gather(call), ended=ends["ended"].gather(call))
    own = launched.filter(pl.col("called") >= since_ns) if since_ns is not None else launched.drop_nulls()
    if own.is_empty():
        return None
    start, ended = own.select("ts_ns", "ended").row(int(own["ts_ns"].arg_min() or 0))
    until = pl.col("ts_ns") + pl.col("dur_ns")
    busy_until = trace.activities.filter(pl.col("ts_ns") < start).select(until.max()).item()
    last = trace.activities.select(until.max()).item()
    waited = start - max(ended, busy_until or ended)
    return (start, waited) if waited > max(MIN_WAIT_NS, MIN_WAIT_FRACTION * (last - ended)) else None
