"""Correct the predicted times of a captured program by a trace of it, from any GPU and at any batch.

Both have the same ops. Where the trace ran one with the same inputs, its time is measured; at other sizes the ratio of
measured to predicted time carries over::

    trace     aten::addmm  512 x 4096 x 4096     80 us measured, 100 us predicted      ratio 0.8
    program   aten::addmm  512 x 4096 x 4096    100 us predicted   ->   80 us, measured
              aten::addmm 2048 x 4096 x 4096    390 us predicted   ->  312 us, corrected
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from predictors import Gpu
from tracekit.arrays import Floats
from tracekit.capturing.calls import Call
from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.recorded_program import THREAD, RecordedCalls, build_program, find_calls
from tracekit.capturing.timed_trace import predict_times
from tracekit.errors import CaptureError
from tracekit.messages import models as messages
from tracekit.models.captured import CaptureFacts, hash_inputs
from tracekit.run import MeasuredRun, prepare_run
from tracekit.trace import Trace

MAX_RATIO = 5.0
"""Of measured to predicted times; beyond it a trace's op is another one than its inputs say."""


@dataclass(frozen=True)
class MeasuredOps:
    """What a trace tells of the time of ops.

    Attributes:
        trace: Its name.
        alike: By op and inputs, the ratio of measured to predicted time.
        by_layer: The same by op and all of its inputs' shapes but the first axis; empty of a GPU.
        by_op: The same by op, of all inputs.
    """

    trace: str
    gpu: Gpu
    alike: Mapping[tuple[str, str], float]
    by_layer: Mapping[str, float]
    by_op: Mapping[str, float]

    def correct(self, program: CapturedProgram, times_us: Floats) -> tuple[CaptureFacts, Floats]:
        """Correct predicted times of a program's kernels on the trace's GPU.

        Returns:
            The program's facts with what was measured, and the times.
        """
        keys = [_make_key(call) for call in program.calls]
        ratios = [
            self.alike.get(key, self.by_layer.get(make_layer_key(call), self.by_op.get(key[0], 1.0)))
            for key, call in zip(keys, program.calls, strict=True)
        ]
        counts = [len(call.kernels) for call in program.calls]
        seen = tuple(sorted({hash_inputs(*key) for key in keys if key in self.alike}))
        facts = replace(program.facts, gpu=self.gpu.slug, measured_by=self.trace, seen=seen)
        return facts, times_us * np.repeat(ratios, counts)


def measure_ops(trace: Trace) -> MeasuredOps:
    """Measure the ops of a trace against their predictions.

    Of several ranks the first one counts.

    Raises:
        CaptureError: It is a captured program itself, its GPU isn't known, or its ops have no shapes.
    """
    run = prepare_run(trace, rank=trace.ranks[0].rank) if len(trace.ranks) > 1 else prepare_run(trace)
    if run.is_captured:
        raise CaptureError(messages.MEASURED_BY_CAPTURE(path=run.trace.source))
    if run.gpu is None:
        raise CaptureError(messages.MEASURED_BY_UNKNOWN_GPU(path=run.trace.source))
    found = find_calls(run.trace) if run.trace.has_shapes else None
    program = build_program(run.trace, found) if found else None
    if found is None or program is None:
        raise CaptureError(messages.MEASURED_WITHOUT_SHAPES(path=run.trace.source))
    predicted = sum_kernels(found.calls, predict_times(program, run.gpu))
    table = pl.DataFrame({"measured": _sum_measured(run, found), "predicted": predicted})
    return replace(compare_ops(run.trace.source, run.gpu, found.calls, table, MAX_RATIO), by_layer={})


def compare_ops(
    source: str, gpu: Gpu, calls: Sequence[Sequence[Call]], times: pl.DataFrame, max_ratio: float
) -> MeasuredOps:
    """Compare what ops took with their predictions.

    Args:
        source: Name of the trace.
        gpu: Where they ran.
        calls: Their calls.
        times: ``measured`` and ``predicted`` time of each op.
        max_ratio: Of the two that counts at most.
    """
    table = times.with_row_index("row")
    keys = pl.DataFrame(
        [(row, *_make_key(call), make_layer_key(call)) for row, several in enumerate(calls) for call in several],
        schema={"row": pl.UInt32, "op": pl.String, "inputs": pl.String, "layer": pl.String},
        orient="row",
    ).unique()
    rows = keys.join(table.filter((pl.col("measured") > 0) & (pl.col("predicted") > 0)), on="row")
    ratio = (pl.col("measured").sum() / pl.col("predicted").sum()).clip(1 / max_ratio, max_ratio)
    alike = rows.group_by("op", "inputs").agg(ratio.alias("ratio"))
    by_layer = rows.group_by("layer").agg(ratio.alias("ratio"))
    by_op = rows.group_by("op").agg(ratio.alias("ratio"))
    return MeasuredOps(
        source,
        gpu,
        {(op, inputs): value for op, inputs, value in alike.iter_rows()},
        dict(by_layer.iter_rows()),
        dict(by_op.iter_rows()),
    )


def make_layer_key(call: Call) -> str:
    """Return an op with its inputs' shapes but for their first axis: the same layer at any batch."""
    return json.dumps([call.op, [one[1:] if isinstance(one, list) else one for one in call.dims]])


def _make_key(call: Call) -> tuple[str, str]:
    """Return an op and its inputs' shapes, as a trace's table has them."""
    return call.op, json.dumps(call.dims, separators=(",", ":"))


def sum_kernels(calls: Sequence[Sequence[Call]], times_us: Floats) -> Floats:
    """Sum the times of each op's kernels."""
    counts = np.array([sum(len(call.kernels) for call in several) for several in calls])
    ends = np.concatenate([[0.0], np.cumsum(times_us)])
    last = np.cumsum(counts)
    return np.asarray(ends[last] - ends[last - counts])


def _sum_measured(run: MeasuredRun, found: RecordedCalls) -> Floats:
    """Sum the measured times of the kernels that each op launched in the measured steps, in microseconds."""
    launches = (
        run.trace.calls.select(*THREAD, "ts_ns").with_row_index("call").with_columns(pl.col("call").cast(pl.Int64))
    )
    kernels = run.kernels.filter(run.is_in_chosen_steps).select("call", "dur_ns").drop_nulls("call")
    spans = found.ops.select(*THREAD, "ts_ns", end_ns=pl.col("ts_ns") + pl.col("dur_ns")).with_row_index("row")
    launched = (
        kernels.join(launches, on="call")
        .sort("ts_ns")
        .join_asof(spans.sort("ts_ns"), on="ts_ns", by=list(THREAD), check_sortedness=False)
    )
    inside = launched.filter(pl.col("ts_ns") <= pl.col("end_ns"))
    totals = inside.group_by("row").agg(us=pl.col("dur_ns").sum() / 1e3)
    joined = spans.select("row").join(totals, on="row", how="left", maintain_order="left")
    return joined["us"].fill_null(0.0).to_numpy()
