"""Find the profiler's own work that delayed the host, as CUPTI records it (overhead events).

Kineto writes such an event without its thread. It delayed a thread if it lies within an op or call of that thread and
nothing of the thread begins or ends meanwhile. Buffers, for example, are flushed on CUPTI's own thread, where the
program isn't delayed. Loading a kernel (``Lazy Function Loading``) is CUDA's work, with or without the profiler.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Bools
from tracekit.trace import RankTrace

PROFILER_OVERHEAD_KINDS = ("Buffer Flush", "Instrumentation", "Resource", "Activity Buffer Request")
"""Kinds of overhead that CUPTI causes only while recording (libkineto's ``overheadKindString``)."""


def find_profiler_stalls(rank: RankTrace) -> pl.DataFrame:
    """Find the profiler's work that delayed exactly one thread: ``ts_ns``, ``dur_ns``, ``name``, ``pid``, ``tid``."""
    own = rank.overheads.filter(pl.col("name").is_in(PROFILER_OVERHEAD_KINDS)).select("ts_ns", "dur_ns", "name")
    threads = rank.calls.select("pid", "tid").unique().sort("pid", "tid")
    if own.is_empty() or threads.is_empty():
        return own.head(0).join(threads, how="cross")
    events = pl.concat([table.select("ts_ns", "dur_ns", "pid", "tid") for table in (rank.ops, rank.calls)])
    held = np.stack(
        [
            _is_within_thread_event(own, events.join(threads[row], on=["pid", "tid"], nulls_equal=True))
            for row in range(threads.height)
        ]
    )
    one = held.sum(axis=0) == 1
    return own.filter(pl.Series(one)).hstack(threads[np.argmax(held, axis=0)[one].tolist()])


def _is_within_thread_event(own: pl.DataFrame, events: pl.DataFrame) -> Bools:
    """Mark the work that lies within an event of a thread and in which no event of the thread begins or ends."""
    ordered = events.sort("ts_ns")
    begin = ordered["ts_ns"].to_numpy()
    end = begin + ordered["dur_ns"].to_numpy()
    since, until = own["ts_ns"].to_numpy(), (own["ts_ns"] + own["dur_ns"]).to_numpy()
    before = np.searchsorted(begin, since, side="right")
    covered = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)])[before] >= until
    by_end = np.sort(end)
    begins = np.searchsorted(begin, until) > before
    ends = np.searchsorted(by_end, until) > np.searchsorted(by_end, since, side="right")
    held: Bools = covered & ~begins & ~ends
    return held
