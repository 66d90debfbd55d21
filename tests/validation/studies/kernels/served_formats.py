"""Products and experts of serving engines on weights that the fit never saw: narrow formats, few tokens, MLA's batches.

The weights that ship were fitted on all shapes; here each law is fitted without a fifth of the weights' shapes (columns
and depth of a product, sizes and number of experts), whatever the number of tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.columns import build_law_inputs
from predictors.model import evaluate_law
from predictors.result import compute_centre, compute_half_width
from predictors.training.fit import (
    LawFit,
    LawMeasurements,
    fit_law_and_corrections,
    hash_weights,
    load_measurements,
    sample_rows,
)
from predictors.training.published import RATES_TABLE
from predictors.weights_file import Weights, load_weights
from predictors.work import compute_bound_us
from tests.validation.study import AICONFIGURATOR, KERNEL_DATA, find_input, format_table

INPUTS = (KERNEL_DATA, AICONFIGURATOR)

TESTED_ROWS = 300
"""Rows of one library, engine and release on one GPU."""
FEW_TOKENS = 64
MIN_US = 20.0
SUPERSEDED_RELEASE = (pl.col("engine") == "sglang") & (pl.col("release") == 514.0)
SUPERSEDED_GPUS = ("b200", "b300", "gb200", "gb300")
BATCHED = pl.col("batch") > 1
ALONE = pl.col("batch") == 1
SERVED = pl.col("engine").is_not_null()
LONG = pl.col("latency_us") >= MIN_US


@dataclass(frozen=True)
class Row:
    """A row of the table: which kernels of a law, and the GPUs that it is restricted to."""

    name: str
    law: str
    kernels: pl.Expr
    gpus: Sequence[str] = ()


ROWS = (
    Row("bf16 products", "gemm half", SERVED & ALONE & LONG),
    Row("bf16 products of latent attention", "gemm half", BATCHED & SERVED & LONG),
    Row("fp8 products, up to 64 tokens, without quantising", "gemm fp8", SERVED & ALONE & (pl.col("m") <= FEW_TOKENS)),
    Row("fp8 products", "gemm fp8", SERVED & ALONE & LONG),
    Row("fp8 products of latent attention", "gemm fp8", BATCHED & SERVED & LONG),
    Row("nvfp4 products, up to 64 tokens, without quantising", "gemm nvfp4", SERVED & (pl.col("m") <= FEW_TOKENS)),
    Row("nvfp4 products", "gemm nvfp4", SERVED & LONG),
    Row("fp8 products in blocks", "gemm fp8_block", SERVED & LONG),
    Row("the same of SGLang 0.5.14 on four Blackwells", "gemm fp8_block", SUPERSEDED_RELEASE & LONG, SUPERSEDED_GPUS),
    Row("quantising, up to 64 tokens", "quantise", pl.col("rows") <= FEW_TOKENS),
    Row("quantising", "quantise", LONG),
    Row("bf16 experts", "moe half", SERVED & LONG),
    Row("fp8 experts", "moe fp8", SERVED & LONG),
    Row("fp8 experts in blocks", "moe fp8_block", SERVED & LONG),
    Row("nvfp4 experts", "moe nvfp4", SERVED & LONG),
    Row("experts with weights of 4 bits, inputs of 16", "moe w4a16", SERVED & LONG),
    Row("experts with weights of 4 bits, inputs of 8", "moe w4a8", SERVED & LONG),
)  # fmt: skip


def run() -> str:
    """Return the table."""
    data, wheel = find_input(KERNEL_DATA), find_input(AICONFIGURATOR)
    headings = ("kernels", "GPUs", "rows", "error, median", "90th percentile", "bias", "inside 90 %", "half-width")
    measured = load_measurements([data / "aiconfigurator", wheel, RATES_TABLE])
    return "\n".join(
        (
            "# Kernels of serving engines on weights left out\n",
            "Each law fitted without a fifth of the weights' shapes, engine, release and library told.\n",
            format_table(headings, _score_laws(measured, load_weights())),
            f"From {MIN_US:g} µs on, but for those up to {FEW_TOKENS} tokens.\n",
        )
    )


def _score_laws(measured: dict[str, list[LawMeasurements]], shipped: Weights) -> Iterator[tuple[str, ...]]:
    for law in dict.fromkeys(row.law for row in ROWS):
        parts = [hold_out_weights(part) for part in measured[law]]
        fit = fit_law_and_corrections(
            law, [part for part in parts if not part.select_shapes(test=False).table.is_empty()]
        )
        yield from (score_row(row, fit, parts, shipped) for row in ROWS if row.law == law)


def hold_out_weights(part: LawMeasurements) -> LawMeasurements:
    """Never train on a fifth of the weights."""
    return replace(part, table=part.table.with_columns(fold=hash_weights()))


def score_row(row: Row, fit: LawFit, parts: Sequence[LawMeasurements], shipped: Weights) -> tuple[str, ...]:
    """Return what the fit makes of a row's kernels."""
    ratios, widths, centres = [], [], []
    tested = [part for part in parts if not part.is_published_rate and (not row.gpus or part.gpu in row.gpus)]
    for part in tested:
        table = sample_rows(part.select_shapes(test=True).table.filter(row.kernels), TESTED_ROWS)
        if table.is_empty():
            continue
        ratios.append(_predict(fit, part, table) / table["latency_us"].to_numpy())
        widths.append(np.full(table.height, compute_half_width(row.law, part.hardware, shipped)))
        centres.append(np.full(table.height, compute_centre(row.law, part.hardware, shipped)))
    ratio, width, centre = (np.concatenate(each) for each in (ratios, widths, centres))
    error, inside = np.abs(ratio - 1), np.abs(np.log(ratio) + centre) <= width
    return (
        row.name, str(len(ratios)), f"{ratio.size:,}", f"{100 * np.median(error):.1f} %",
        f"{100 * np.quantile(error, 0.9):.0f} %", f"{100 * (np.median(ratio) - 1):+.0f} %",
        f"{100 * np.mean(inside):.0f} %", f"x{np.exp(np.median(width)):.2f}",
    )  # fmt: skip


def _predict(fit: LawFit, part: LawMeasurements, table: pl.DataFrame) -> Floats:
    inputs = build_law_inputs(table)
    time_us = evaluate_law(inputs, fit.law, part.hardware, fit.weights)[1]
    return np.maximum(time_us, compute_bound_us(fit.law, inputs.to_columns(part.hardware), part.hardware))
