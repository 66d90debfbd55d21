"""Finding: attention as two GEMMs with a softmax between them, with its score matrix in memory."""

from collections.abc import Iterator

import polars as pl

from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

MIN_KEYS = 64
SCORE_MATRIX_COLUMNS = ("rows", "cols")
"""Columns that identify a score matrix: its rows (of all heads of all sequences), and the keys."""
NEEDED_COLUMNS = (
    *("kernel", "op", "name", "input_dims", "family", "dtype", "phase", "time_us"),
    *("batch", "m", "n", "k", *SCORE_MATRIX_COLUMNS),
)


def find_unfused_attention(context: FindingContext) -> Iterator[Finding]:
    """Find forward softmaxes and their GEMMs, if one attention kernel instead saves at least 1 % of the step."""
    if context.select_families("softmax").is_empty():
        return
    softmax, gemms = _find_attention_kernels(context.kernels)
    if context.run.gpu is None or gemms.is_empty():
        return
    parts = pl.concat([softmax, gemms], how="diagonal")
    nothing = pl.Series([0.0]).new_from_index(0, gemms.height)
    saves_us = context.compute_saving_us(
        parts, pl.concat([context.predict_on_source_us(_make_fused_attention(softmax)), nothing])
    )
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.UNFUSED_ATTENTION(kernels_us=context.sum_per_step_us(parts)),
        saves_us=saves_us,
        evidence=context.list_evidence(parts),
    )


def _find_attention_kernels(kernels: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the softmaxes over score matrices, with the sizes of their attention, and the batched GEMMs around them.

    Shapes, with ``rows`` = batch x heads x queries::

        QK^T: [batch x m, k] -> scores [rows, cols]      a GEMM whose output the softmax reads (n = cols)
        softmax over cols
        PV:   [rows, cols]   -> [batch x m, n]           a GEMM that reads the scores (k = cols)
    """
    forward = kernels.select(NEEDED_COLUMNS).filter(pl.col("phase") == "forward")
    gemms = forward.filter((pl.col("family") == "gemm") & (pl.col("batch") > 1)).drop("rows", "cols")
    softmax = forward.filter((pl.col("family") == "softmax") & (pl.col("cols") >= MIN_KEYS))
    whole = pl.col("batch") * pl.col("m")
    making = gemms.with_columns(rows=whole, cols="n").join(softmax, on=SCORE_MATRIX_COLUMNS, how="semi")
    using = (
        gemms.with_columns(rows=whole, cols="k")
        .join(making, on=SCORE_MATRIX_COLUMNS, how="semi")
        .join(making, on="kernel", how="anti")
    )
    sizes = making.group_by(SCORE_MATRIX_COLUMNS).agg(pl.col("batch", "m", "k", "dtype").first())
    found = softmax.drop("batch", "m", "k", "dtype").join(
        sizes, on=SCORE_MATRIX_COLUMNS, how="inner", maintain_order="left"
    )
    return found, pl.concat([making, using])


def _make_fused_attention(softmax: pl.DataFrame) -> pl.DataFrame:
    """Return one attention kernel per softmax, without the replaced kernels' time as an upper bound."""
    return softmax.select(
        "dtype",
        family=pl.lit("attention"),
        batch=pl.lit(1, pl.Int64),
        heads="batch",
        q_len="m",
        kv_len="cols",
        head_dim="k",
        causal=pl.lit(False),
        paged=pl.lit(False),
        time_us=pl.lit(float("inf")),
    )
