"""Finding: GEMMs in fp32 on a GPU whose tensor cores support a shorter format."""

from collections.abc import Iterator

import polars as pl

from predictors import Gpu
from tracekit.arrays import find_nulls, mark_equal, select_table
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding


def find_full_precision(context: FindingContext) -> Iterator[Finding]:
    """Find GEMMs in fp32 if TF32 (or fp16 on GPUs without TF32) saves at least 1 % of the step."""
    wanted = _choose_shorter_dtype(context.run.gpu)
    if wanted is None:
        return
    gemms = context.select_families("gemm")
    gemms = select_table(gemms, mark_equal(gemms["dtype"], "fp32") & ~find_nulls(gemms["m"]))
    if gemms.is_empty():
        return
    saves_us = context.compute_saving_us(gemms, context.predict_on_source_us(gemms.with_columns(dtype=pl.lit(wanted))))
    if not context.is_worth_reporting(saves_us):
        return
    precision = told.FULL_PRECISION if wanted == "tf32" else told.FULL_PRECISION_WITHOUT_TF32
    yield Finding(
        message=precision(gemms_us=context.sum_per_step_us(gemms)),
        saves_us=saves_us,
        evidence=context.list_evidence(gemms),
    )


def _choose_shorter_dtype(gpu: Gpu | None) -> str | None:
    return None if gpu is None else next((dtype for dtype in ("tf32", "fp16") if dtype in gpu.tensor_tflops), None)
