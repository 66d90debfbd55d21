"""Steps that are told by the calls of a serving engine's worker, where the engine annotates no batches."""

import polars as pl

from tracekit.ingest.nesting import select_outermost
from tracekit.ingest.worker_calls import WORKER_CALL
from tracekit.rules import Rule
from tracekit.trace import RankTrace

RULE = Rule(
    "worker-call-steps",
    "Without marks of batches, each call of a serving engine's worker, such as execute_model, is a step.",
    "vLLM of 2025 on an MI300X and an H100, which marked no batches: a prefill and nine decodes counted as one step.",
)


def find_worker_steps(trace: RankTrace) -> pl.DataFrame:
    """Find the outermost calls of the worker on the thread that launches most, each up to the start of the next.

    Returns:
        ``start_ns``, ``end_ns``, ``pid``, ``tid`` and ``found_name``; no row if there are none.
    """
    calls = trace.annotations.filter(pl.col("name").str.contains(WORKER_CALL))
    found = select_outermost(calls, "pid", "tid").with_columns(end_ns=pl.col("ts_ns") + pl.col("dur_ns"))
    threads = found.join(_count_launches(trace), on=("pid", "tid"), how="left", nulls_equal=True)
    per_thread = threads.group_by("pid", "tid").agg(pl.col("launches").first().fill_null(0), pl.len())
    main = per_thread.sort("launches", "len", "tid", descending=[True, True, False]).head(1)
    own = found.join(main, on=("pid", "tid"), how="semi", nulls_equal=True).sort("ts_ns")
    until = pl.col("ts_ns").shift(-1).fill_null(pl.col("end_ns"))
    return own.select(
        start_ns="ts_ns", end_ns=until, pid="pid", tid="tid", found_name=pl.col("name").mode().sort().first()
    )


def _count_launches(trace: RankTrace) -> pl.DataFrame:
    """Count the activities that each thread launched."""
    call = trace.launches.call.drop_nulls()
    return trace.calls.select("pid", "tid")[call].group_by("pid", "tid").agg(launches=pl.len())
