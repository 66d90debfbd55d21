"""Measure the ops of a recording on its CPU: each runs on the calling thread, one after the other.

What the framework does until the next op counts as the op's::

    thread   [aten::addmm      ]  views, Python  [aten::relu ] ...
             |<---------- time of addmm -------->|

A longer pause is none of an op's: a data loader, or Python's own work.
"""

import json
from collections.abc import Sequence

import polars as pl

from predictors import Gpu
from tracekit.arrays import Floats
from tracekit.capturing.calls import Call
from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.recorded_program import THREAD, RecordedCalls
from tracekit.capturing.sharpen import MeasuredOps, compare_ops, sum_kernels
from tracekit.capturing.timed_trace import GRAPH_US_PER_OP, predict_times
from tracekit.trace import RankTrace

MAX_PAUSE_NS = 200_000
"""Between two ops, up to which it counts as the first one's."""
UNDISTURBED = 0.1
"""Quantile of the times of ops with the same inputs that counts: other processes take the cores from some of them."""
MAX_CPU_RATIO = 50.0
"""Of measured to predicted times of an op on a CPU, whose ops aren't told apart as well as a GPU's kernels."""


def measure_cpu_ops(rank: RankTrace, found: RecordedCalls, program: CapturedProgram, cpu: Gpu) -> MeasuredOps:
    """Measure the ops of a recording against their predictions on its CPU.

    Args:
        rank: The recording.
        found: Its ops that are calls.
        program: Its program.
        cpu: The CPU that it was recorded on.
    """
    predicted = sum_kernels(found.calls, predict_times(program, cpu, GRAPH_US_PER_OP))
    table = pl.DataFrame({"measured": _measure(found.ops), "predicted": predicted})
    return compare_ops(rank.source, cpu, found.calls, _drop_disturbed(table, found.calls), MAX_CPU_RATIO)


def _measure(ops: pl.DataFrame) -> Floats:
    """Return the time of each op, with what follows it up to the next one, in microseconds."""
    pause = pl.col("ts_ns").shift(-1).over(THREAD, order_by="ts_ns") - pl.col("ts_ns") - pl.col("dur_ns")
    pause = pl.when(pause.is_between(0, MAX_PAUSE_NS)).then(pause).otherwise(0)
    times: Floats = ops.select(us=(pl.col("dur_ns") + pause) / 1e3)["us"].to_numpy()
    return times


def _drop_disturbed(table: pl.DataFrame, calls: Sequence[Sequence[Call]]) -> pl.DataFrame:
    """Give each op what it took where nothing disturbed it, of all with the same inputs."""
    keys = [json.dumps([[call.op, call.dims] for call in several]) for several in calls]
    alike = table.with_columns(key=pl.Series(keys, dtype=pl.String))
    return alike.with_columns(measured=pl.col("measured").quantile(UNDISTURBED).over("key")).drop("key")
