"""Finding: half-precision GEMMs that don't use tensor cores, or not with aligned shapes."""

from collections.abc import Iterator

import polars as pl

from tracekit.arrays import select_any
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

HALF_DTYPES = ("fp16", "bf16")
# Kernels of cuBLAS, CUTLASS and MAGMA that use CUDA cores instead of tensor cores.
CUDA_CORE_PATTERN = r"(?i)simt|gemv|gemmSN|magma_|_sgemm_|dot_kernel"
ALIGNMENT_ELEMENTS = 8
"""16 bytes of a half-precision row, which tensor cores load at once (NVIDIA, Matrix Multiplication Background)."""
MIN_SIDE = 16
"""Dimensions below this make no full tile, padded or not."""


def find_missing_tensor_cores(context: FindingContext) -> Iterator[Finding]:
    """Find half-precision GEMMs without tensor cores or with misaligned shapes, if the model predicts a gain."""
    if context.run.gpu is None or not context.run.gpu.tensor_tflops:
        return
    halves = context.select_families("gemm")
    halves = halves[select_any(halves["dtype"], HALF_DTYPES)]
    if halves.is_empty():
        return
    sides = pl.min_horizontal("m", "n", "k") >= MIN_SIDE
    gemms = halves.filter(sides)
    plain = pl.col("name").str.contains(CUDA_CORE_PATTERN)
    odd = pl.any_horizontal(pl.col("n", "k") % ALIGNMENT_ELEMENTS != 0)
    yield from _find_unused(context, gemms.filter(plain & ~odd))
    yield from _find_misaligned(context, gemms.filter(odd))


def _find_unused(context: FindingContext, gemms: pl.DataFrame) -> Iterator[Finding]:
    saves_us = context.compute_saving_us(gemms, context.get_model_us(gemms)) if gemms.height else 0.0
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.TENSOR_CORES_UNUSED(gemms_us=context.sum_per_step_us(gemms)),
        saves_us=saves_us,
        evidence=context.list_evidence(gemms, shown.OP_LAUNCHED_AS, kernel=pl.col("name").str.slice(0, 60)),
    )


def _find_misaligned(context: FindingContext, gemms: pl.DataFrame) -> Iterator[Finding]:
    if gemms.is_empty():
        return
    padded = gemms.with_columns((pl.col("m", "n", "k") / ALIGNMENT_ELEMENTS).ceil().cast(pl.Int64) * ALIGNMENT_ELEMENTS)
    saves_us = context.compute_saving_us(gemms, context.predict_on_source_us(padded))
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.MISALIGNED_SHAPES(alignment=ALIGNMENT_ELEMENTS, gemms_us=context.sum_per_step_us(gemms)),
        saves_us=saves_us,
        evidence=context.list_evidence(gemms, shown.GEMM_LAUNCHED, m=pl.col("m"), n=pl.col("n"), k=pl.col("k")),
    )
