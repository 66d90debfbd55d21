"""Kernels between a model's GEMMs: each passes over the activations there, or over a part of them.

After the MLP's first GEMM they are as wide as its output, after attention as its heads, else as the model. A norm of an
engine also adds the residual: it reads and writes two tensors. How many of the tensors a kernel touches isn't known, so
the work has bounds.
"""

import polars as pl

from tracekit.workload.work_inference import model_roles as roles
from tracekit.workload.work_inference.expert_gemms import get_item_bytes

NORM_KERNEL = r"(?i)norm|rsqrt"
WORK_LOW, WORK_HIGH = 0.5, 1.5
"""Bounds on the bytes of a pass: one of two tensors is not touched, or one more is."""
FLOPS_PER_ELEMENT = 2
RESIDUAL_NORM_TENSORS, PASS_TENSORS = 4, 2


def build_pass_columns() -> dict[str, pl.Expr]:
    """Build the columns of a pass over the activations behind ``role_before``.

    The table has ``mixer_in`` and ``mixer_out``, the columns before and behind attention, ``hidden``, ``vocabulary``,
    ``tokens``, ``rows_of_logits``, ``experts``, ``top_k``, ``wide`` and ``inner`` of its experts or its MLP.
    """
    before, hidden = pl.col("role_before"), pl.col("hidden")
    is_norm = (pl.col("family") == "norm") | pl.col("name").str.contains(NORM_KERNEL)
    is_copy = pl.col("family") == "copy"
    is_activation = before.is_in(roles.IN_ROLES)
    gathered = hidden * (1 + pl.col("top_k"))
    inner_rows = pl.when(before == roles.EXPERTS_IN).then("top_k").otherwise(1)
    cols = (
        pl.when(before == roles.LOGITS).then("vocabulary")
        .when(before.is_in(roles.BEFORE_MIXER)).then("mixer_in")
        .when(before.is_in([roles.ATTENTION, roles.EXPAND])).then("mixer_out")
        .when(is_activation).then(pl.col("inner") * inner_rows)
        .when((before == roles.ROUTER) & is_copy).then(gathered)
        .when((before == roles.ROUTER) & (pl.col("family") != "elementwise")).then("experts")
        .when((before == roles.EXPERTS_OUT) & ~is_norm & ~is_copy).then(gathered)
        .otherwise(hidden)
    )  # fmt: skip
    tensors = (
        pl.when(is_norm & ~before.is_in(roles.BEFORE_MIXER)).then(RESIDUAL_NORM_TENSORS)
        .when(is_activation).then(1 + pl.col("wide") / pl.col("inner"))
        .when(cols.eq(gathered)).then(1)
        .otherwise(PASS_TENSORS)
    )  # fmt: skip
    rows = pl.when(before == roles.LOGITS).then("rows_of_logits").otherwise("tokens")
    return {
        "rows": rows,
        "cols": cols,
        "flops": FLOPS_PER_ELEMENT * rows * cols,
        "bytes": (rows * cols * tensors * get_item_bytes()).cast(pl.Int64),
        "work_low": pl.lit(WORK_LOW),
        "work_high": pl.lit(WORK_HIGH),
    }
