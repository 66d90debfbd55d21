"""Kernel names that contradict the op above: a recorder wrote one kernel's name on others.

::

    aten::mm     clamp_kernel      is a GEMM, whatever it is called
    aten::relu   clamp_kernel      may well be it
"""

import polars as pl

from tracekit.ingest.correlations import KERNEL_LAUNCHES
from tracekit.rules import Rule
from tracekit.workload.classify import COMPUTE_FAMILIES, GENERIC_FAMILIES, classify_activity, classify_op

RULE = Rule(
    "op-over-name",
    "Where all kernels of an op have a name that also serves ops of another kind, and can't be its own, the op counts.",
    "ROCm's profiler wrote the last kernel's name on all (rocm-systems 9697): GEMMs read as clamps, 26 % too slow on "
    "an H100.",
)
REPLACED_NAME = r"^(?:elementwise )?kernel of "
_OWN_FAMILIES = (*COMPUTE_FAMILIES, "norm", "softmax")
"""Families of ops that have a kernel of their own family among theirs, or one without a family."""
_POINTWISE_OP = (
    r"^aten::(?:relu|gelu|silu|sigmoid|tanh|add|sub|mul|div|neg|exp|log|sqrt|rsqrt|pow|abs|clamp|clamp_min|where|"
    r"threshold_backward|gelu_backward|silu_backward|sigmoid_backward|tanh_backward|native_dropout|bernoulli|fill|zero|"
    r"copy|cat|clone)_?$"
)
_OP_KEY = ("op_row", "captured_row")


def replace_contradicted_names(owned: pl.DataFrame, call_op_row: pl.Series, calls: pl.DataFrame) -> pl.DataFrame:
    """Name kernels after their op where their own name can't be right.

    Args:
        owned: The activities with ``op``, ``op_row``, ``captured_row`` and ``input_dims``.
        call_op_row: The op of each call.
        calls: The calls.
    """
    kernels = owned.filter(kind="kernel").drop_nulls("op")
    pairs = kernels.select("name", "op").unique().with_columns(_contradicts())
    doubtful = pairs.filter("contradicts")
    if doubtful.is_empty():
        return owned
    served = pairs.group_by("name").agg(kinds=pl.col("kind_of_op").n_unique())
    doubtful = doubtful.join(served.filter(pl.col("kinds") > 1), on="name", how="semi")
    marked = kernels.join(doubtful.select("name", "op", wrong=True), on=("name", "op"), how="left")
    whole = marked.group_by(_OP_KEY).agg(pl.col("wrong").fill_null(value=False).all(), pl.len())
    launches = calls.select(op_row=call_op_row).filter(calls["name"].str.contains(KERNEL_LAUNCHES))
    launched = launches.drop_nulls().group_by("op_row").agg(launches=pl.len())
    whole = whole.filter("wrong").join(launched, on="op_row", how="left")
    whole = whole.filter(pl.col("launches").fill_null(pl.col("len")) <= pl.col("len"))
    is_wrong = pl.struct(_OP_KEY).is_in(whole.select(pl.struct(_OP_KEY)).to_series().implode())
    pointwise = pl.col("op").str.contains(_POINTWISE_OP) & pl.col("op").is_in(["aten::copy_", "aten::cat"]).not_()
    name = (
        pl.when(pointwise).then(pl.format("elementwise kernel of {}", "op")).otherwise(pl.format("kernel of {}", "op"))
    )
    replaced = (pl.col("kind") == "kernel") & pl.col("input_dims").is_not_null() & is_wrong
    return owned.with_columns(name=pl.when(replaced).then(name).otherwise("name"))


def _contradicts() -> tuple[pl.Expr, pl.Expr]:
    """Return whether the op can't launch a kernel of this name only, and the kind of the op."""
    by_name = pl.col("name").map_elements(lambda name: classify_activity("kernel", name, None), pl.String)
    by_op = pl.col("op").map_elements(classify_op, pl.String, skip_nulls=False)
    is_pointwise = pl.col("op").str.contains(_POINTWISE_OP)
    compute = by_name.is_in(COMPUTE_FAMILIES)
    own = by_op.is_in(_OWN_FAMILIES) & (by_name != by_op) & (by_name != "other")
    alike = compute & by_op.is_in(COMPUTE_FAMILIES)
    generic = by_name.is_in(GENERIC_FAMILIES) & by_op.is_in(["norm", "softmax"])
    foreign = is_pointwise & ~by_name.is_in([*GENERIC_FAMILIES, "other"])
    kind = pl.when(is_pointwise).then(pl.lit("pointwise")).otherwise(pl.coalesce(by_op, "op"))
    return ((own & ~alike & ~generic) | foreign).fill_null(value=False).alias("contradicts"), kind.alias("kind_of_op")
