"""Which phase of a training step each kernel belongs to: forward, backward or optimizer. Inference is all forward.

What encloses the launch tells: autograd's engine runs each node of the backward pass in an op of its own, optimizers
annotate their step. Where nothing encloses it, as in a CUDA graph's replay, the kernel's own op or name may tell.
"""

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload.owners import at_rows, innermost_ops

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

# Of ops and annotations that enclose launches. People write ranges of their own as "## backward ##".
MARKS = {
    OPTIMIZER: r"^Optimizer\.(step|zero_grad)#|^(?i:\W*(optimizer|optimizer[ ._]step|zero_grad)\W*)$",
    BACKWARD: r"^autograd::engine::evaluate_function|Backward\d*$|^(?i:\W*(backward|loss[ ._]backward)\W*)$",
    FORWARD: r"^(?i:\W*forward\W*)$",
}
STEPS_PARAMETERS = r"^aten::_fused_(adam|adamw|sgd|adagrad)_?"
BACKWARD_NAME = r"(?i)_bwd|bwd_|dgrad|wgrad|_wrw|backward"


def marked(calls: pl.DataFrame, *ranges: pl.DataFrame) -> pl.Series:
    """The phase of what encloses the start of each call on its thread; null if nothing that tells does.

    Args:
        calls: ``schema.CALLS``.
        ranges: Tables of ops or annotations: ``name``, ``ts_ns``, ``dur_ns``, ``pid``, ``tid``.
    """
    phase = pl.coalesce(pl.when(pl.col("name").str.contains(mark)).then(pl.lit(name)) for name, mark in MARKS.items())
    columns = ("ts_ns", "dur_ns", "pid", "tid")
    marks = pl.concat([table.select(*columns, phase=phase) for table in ranges]).drop_nulls("phase")
    return at_rows(marks["phase"], innermost_ops(calls, marks))


def launched_in(trace: RankTrace, call: pl.Series) -> pl.Series:
    """The phase that each activity was launched in, or captured in; null where nothing tells.

    Args:
        trace: What the rank recorded.
        call: Of each activity, the row in ``trace.calls`` that launched it.
    """
    phase = marked(trace.calls, trace.ops, trace.annotations)
    of_call = at_rows(phase, call)
    if trace.captured is None:
        return of_call
    captured = marked(trace.captured.calls, trace.captured.ops)
    of_capture = captured.gather(trace.captured.launched_by)
    return of_capture.zip_with(of_capture.is_not_null(), of_call)


def phase_of(launched: str) -> pl.Expr:
    """The phase of each row of the kernel table.

    Args:
        launched: Column that :func:`launched_in` gave.
    """
    # A transposed convolution's forward pass runs another one's dgrad kernel.
    by_name = pl.col("name").str.contains(BACKWARD_NAME) & pl.col("op").str.contains(BACKWARD_NAME).fill_null(True)
    backward = pl.col("direction").is_in(["backward", "dgrad", "wgrad"]) | by_name
    return (
        pl.when(pl.col("op").str.contains(STEPS_PARAMETERS))
        .then(pl.lit(OPTIMIZER))
        .when(pl.col(launched).is_not_null())
        .then(launched)
        .when(backward.fill_null(False))
        .then(pl.lit(BACKWARD))
        .when(pl.col("family") == "optimizer")
        .then(pl.lit(OPTIMIZER))
        .otherwise(pl.lit(FORWARD))
    )
