"""Recordings that began while the GPU was busy with earlier work.

The first kernel of such a trace starts long after its launch call returned. The GPU's work before it isn't recorded,
and would stay as a constant in every prediction::

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
    "A trace without step marks whose first kernel starts long after its launch returned begins at that kernel.",
    "vllm_piecewise_graph_execution (149 of 308 ms) and vllm_decode_full_graph (7.8 of 19 ms).",
)
MIN_WAIT_NS = 1_000_000
MIN_WAIT_FRACTION = 0.05
"""Shorter waits, absolute or as a fraction of the GPU's recorded time, are launch latency or a first launch's load."""


def find_busy_start(trace: RankTrace, without: RuleNames) -> tuple[int, int] | None:
    """Return the start of the first kernel, and how long after its launch that is.

    Returns:
        ``None`` without such a wait, or if the rule is off.
    """
    if not RULE.is_on(without):
        return None
    first = trace.activities.head(1)
    call = find_launching_calls(first, trace.calls).drop_nulls()
    if call.is_empty():
        return None
    start, ended = first["ts_ns"][0], (trace.calls["ts_ns"] + trace.calls["dur_ns"])[call[0]]
    last = trace.activities.select((pl.col("ts_ns") + pl.col("dur_ns")).max()).item()
    waited = start - ended
    return (start, waited) if waited > max(MIN_WAIT_NS, MIN_WAIT_FRACTION * (last - ended)) else None
