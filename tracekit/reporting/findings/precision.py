"""GEMMs in fp32 on a GPU whose tensor cores would take them in a shorter format."""

from collections.abc import Iterator

import polars as pl

from predictors import Gpu
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration

TF32_ADVICE = 'torch.set_float32_matmul_precision("high") runs them in TF32; autocast to bf16 is faster still.'
FP16_ADVICE = "Run them in half precision: torch.autocast with a GradScaler."


def find(case: Case) -> Iterator[Finding]:
    """Fires if the GEMMs that run in fp32 save a hundredth of the step in TF32, or fp16 where it is lacking."""
    wanted = _shorter(case.run.gpu)
    if wanted is None:
        return
    gemms = case.kernels.filter((pl.col("family") == "gemm") & (pl.col("dtype") == "fp32")).drop_nulls("m")
    if gemms.is_empty():
        return
    saves_us = case.saving_us(gemms, case.modelled_us(gemms.with_columns(dtype=pl.lit(wanted))))
    if not case.worth(saves_us):
        return
    yield Finding(
        kind="full-precision",
        title=f"GEMMs take {duration(case.per_step(gemms))} of a step in fp32, without tensor cores.",
        advice=TF32_ADVICE if wanted == "tf32" else FP16_ADVICE,
        saves_us=saves_us,
        evidence=case.evidence(gemms),
    )


def _shorter(gpu: Gpu | None) -> str | None:
    return None if gpu is None else next((dtype for dtype in ("tf32", "fp16") if dtype in gpu.tensor_tflops), None)
