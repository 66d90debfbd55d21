"""What the profiler itself cost the CPU, as CUPTI records it (overhead events).

Kineto writes such an event without its thread. It held a thread up if it lies within an op or call of that thread and
nothing of the thread begins or ends meanwhile. Buffers, for one, are flushed on a thread of CUPTI's own: there the
program goes on. Loading a kernel (``Lazy Function Loading``) is CUDA's work, with the profiler or without.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Bools
from tracekit.trace import RankTrace

OF_THE_PROFILER = ("Buffer Flush", "Instrumentation", "Resource", "Activity Buffer Request")
"""Kinds that CUPTI wouldn't cause without being asked to record (libkineto's ``overheadKindString``)."""


def held_up(rank: RankTrace) -> pl.DataFrame:
    """The profiler's work that held up one thread: ``ts_ns``, ``dur_ns``, ``name``, ``pid``, ``tid`` of that thread."""
    own = rank.overheads.filter(pl.col("name").is_in(OF_THE_PROFILER)).select("ts_ns", "dur_ns", "name")
    threads = rank.calls.select("pid", "tid").unique().sort("pid", "tid")
    if own.is_empty() or threads.is_empty():
        return own.head(0).join(threads, how="cross")
    events = pl.concat([table.select("ts_ns", "dur_ns", "pid", "tid") for table in (rank.ops, rank.calls)])
    held = np.stack(
        [_held(own, events.join(threads[row], on=["pid", "tid"], nulls_equal=True)) for row in range(threads.height)]
    )
    one = held.sum(axis=0) == 1
    return own.filter(pl.Series(one)).hstack(threads[np.argmax(held, axis=0)[one].tolist()])


def _held(own: pl.DataFrame, events: pl.DataFrame) -> Bools:
    """Which pieces of work lie within an event of a thread, and nothing of the thread begins or ends in them."""
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
