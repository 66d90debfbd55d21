"""Recordings that began while the GPU was busy with earlier work.

The first kernel of a stream in such a trace starts long after its launch call returned, and the GPU does nothing else.
Its work before that isn't recorded, and would stay as a constant in every prediction::

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
    call = find_launching_calls(trace.activities, trace.calls)
    ended = (trace.calls["ts_ns"] + trace.calls["dur_ns"]).gather(call)
    until = pl.col("ts_ns") + pl.col("dur_ns")
    launched = trace.activities.select(
        "ts_ns",
        called=trace.calls["ts_ns"].gather(call),
        ended=ended,
        busy_until=until.cum_max().shift(1),
        earlier=pl.col("dur_ns").cum_sum().shift(1, fill_value=0) / pl.col("dur_ns").sum().clip(1),
        is_first=pl.int_range(pl.len()).over("device", "stream") == 0,
        last=until.max(),
    )
    within = pl.col("called").is_not_null() if since_ns is None else pl.col("called") >= since_ns
    waited = pl.col("ts_ns") - pl.max_horizontal("ended", "busy_until")
    long = waited > pl.max_horizontal(MIN_WAIT_NS, MIN_WAIT_FRACTION * (pl.col("last") - pl.col("ended")))
    found = launched.filter(within & long & pl.col("is_first") & (pl.col("earlier") <= MAX_EARLIER_FRACTION))
    return found.select("ts_ns", waited=waited).sort("ts_ns").row(-1) if found.height else None
