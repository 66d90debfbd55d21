"""Classify kernels by the phase of a training step: forward, backward or optimizer. Inference is all forward.

The op or annotation that encloses the launch gives the phase: autograd's engine runs each node of the backward pass in
an op of its own, and optimizers annotate their step. Without one, as in a CUDA graph's replay, the kernel's own op or
name may give it.
"""

import polars as pl

from tracekit.arrays import gather_rows
from tracekit.trace import RankTrace
from tracekit.workload.owners import find_innermost_ops

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

# Names of ops and annotations that enclose launches. Users also annotate ranges such as "## backward ##".
PHASE_MARKS = {
    OPTIMIZER: r"^Optimizer\.(step|zero_grad)#|^(?i:\W*(optimizer|optimizer[ ._]step|zero_grad)\W*)$",
    BACKWARD: r"^autograd::engine::evaluate_function|Backward\d*$|^(?i:\W*(backward|loss[ ._]backward)\W*)$",
    FORWARD: r"^(?i:\W*forward\W*)$",
}
FUSED_OPTIMIZER_OP = r"^aten::_fused_(adam|adamw|sgd|adagrad)_?"
BACKWARD_NAME = r"(?i)_bwd|bwd_|dgrad|wgrad|_wrw|backward"


def find_enclosing_phases(calls: pl.DataFrame, *ranges: pl.DataFrame) -> pl.Series:
    """Find the phase of the op or annotation that encloses the start of each call on its thread; null without one.

    Args:
        calls: ``schema.CALLS``.
        ranges: Tables of ops or annotations: ``name``, ``ts_ns``, ``dur_ns``, ``pid``, ``tid``.
    """
    phase = pl.coalesce(
        pl.when(pl.col("name").str.contains(mark)).then(pl.lit(name)) for name, mark in PHASE_MARKS.items()
    )
    columns = ("ts_ns", "dur_ns", "pid", "tid")
    marks = pl.concat([table.select(*columns, phase=phase) for table in ranges]).drop_nulls("phase")
    return gather_rows(marks["phase"], find_innermost_ops(calls, marks))


def find_launch_phases(trace: RankTrace, call: pl.Series) -> pl.Series:
    """Find the phase in which each activity was launched, or captured; null where none is known.

    Args:
        trace: What the rank recorded.
        call: For each activity, the row in ``trace.calls`` that launched it.
    """
    phase = find_enclosing_phases(trace.calls, trace.ops, trace.annotations)
    of_call = gather_rows(phase, call)
    if trace.captured is None:
        return of_call
    captured = find_enclosing_phases(trace.captured.calls, trace.captured.ops)
    of_capture = captured.gather(trace.captured.call_row)
    return of_capture.zip_with(of_capture.is_not_null(), of_call)


def classify_phase(launched: str) -> pl.Expr:
    """Classify each row of the kernel table by phase.

    Args:
        launched: Column with the result of ``find_launch_phases``.
    """
    # A transposed convolution's forward pass runs another one's dgrad kernel.
    by_name = pl.col("name").str.contains(BACKWARD_NAME) & pl.col("op").str.contains(BACKWARD_NAME).fill_null(True)
    backward = pl.col("direction").is_in(["backward", "dgrad", "wgrad"]) | by_name
    return (
        pl.when(pl.col("op").str.contains(FUSED_OPTIMIZER_OP))
        .then(pl.lit(OPTIMIZER))
        .when(pl.col(launched).is_not_null())
        .then(launched)
        .when(backward.fill_null(False))
        .then(pl.lit(BACKWARD))
        .when(pl.col("family") == "optimizer")
        .then(pl.lit(OPTIMIZER))
        .otherwise(pl.lit(FORWARD))
    )
