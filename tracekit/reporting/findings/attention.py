"""Attention written as two GEMMs with a softmax between them, its matrix of scores in memory."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration

LEAST_KEYS = 64
SCORES = ("rows", "cols")
"""What identifies a matrix of scores: all its rows (of every head of every sequence), and the keys."""


def find(case: Case) -> Iterator[Finding]:
    """Fires if one attention kernel in place of forward softmaxes and the GEMMs around them saves a hundredth."""
    softmax, gemms = _parts(case.kernels)
    if case.run.gpu is None or gemms.is_empty():
        return
    parts = pl.concat([softmax, gemms], how="diagonal")
    nothing = pl.Series([0.0]).new_from_index(0, gemms.height)
    saves_us = case.saving_us(parts, pl.concat([case.modelled_us(_fused(softmax)), nothing]))
    if not case.worth(saves_us):
        return
    yield Finding(
        kind="unfused-attention",
        title=f"Attention takes {duration(case.per_step(parts))} of a step as separate GEMMs and softmaxes.",
        advice="torch.nn.functional.scaled_dot_product_attention (FlashAttention) never writes the scores to memory.",
        saves_us=saves_us,
        evidence=case.evidence(parts),
    )


def _parts(kernels: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Softmaxes over scores with the sizes of their attention, and the batched GEMMs around them."""
    forward = kernels.filter(pl.col("phase") == "forward")
    gemms = forward.filter((pl.col("family") == "gemm") & (pl.col("batch") > 1)).drop("rows", "cols")
    softmax = forward.filter((pl.col("family") == "softmax") & (pl.col("cols") >= LEAST_KEYS))
    whole = pl.col("batch") * pl.col("m")
    making = gemms.with_columns(rows=whole, cols="n").join(softmax, on=SCORES, how="semi")
    using = (
        gemms.with_columns(rows=whole, cols="k")
        .join(making, on=SCORES, how="semi")
        .join(making, on="kernel", how="anti")
    )
    sizes = making.group_by(SCORES).agg(pl.col("batch", "m", "k", "dtype").first())
    found = softmax.drop("batch", "m", "k", "dtype").join(sizes, on=SCORES, how="inner", maintain_order="left")
    return found, pl.concat([making, using])


def _fused(softmax: pl.DataFrame) -> pl.DataFrame:
    """One attention per softmax; what it replaces is no bound for its time."""
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
