"""Half-precision GEMMs that the tensor cores don't get, or not in whole pieces."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration

HALF = ("fp16", "bf16")
# Kernels of cuBLAS, CUTLASS and MAGMA that work on the CUDA cores.
PLAIN = r"(?i)simt|gemv|gemmSN|magma_|_sgemm_|dot_kernel"
MULTIPLE = 8
"""16 bytes of a half-precision row, which tensor cores load at once (NVIDIA, Matrix Multiplication Background)."""
LEAST_SIDE = 16
"""Shorter sides make no tile, padded or not."""


def find(case: Case) -> Iterator[Finding]:
    """Fires for GEMMs that run outside of the tensor cores, and for misaligned ones, if the model does better."""
    if case.run.gpu is None or not case.run.gpu.tensor_tflops:
        return
    sides = pl.min_horizontal("m", "n", "k") >= LEAST_SIDE
    gemms = case.kernels.filter((pl.col("family") == "gemm") & pl.col("dtype").is_in(HALF) & sides)
    plain = pl.col("name").str.contains(PLAIN)
    odd = pl.any_horizontal(pl.col("n", "k") % MULTIPLE != 0)
    yield from _unused(case, gemms.filter(plain & ~odd))
    yield from _misaligned(case, gemms.filter(odd))


def _unused(case: Case, gemms: pl.DataFrame) -> Iterator[Finding]:
    saves_us = case.saving_us(gemms, case.modelled_us(gemms)) if gemms.height else 0.0
    if not case.worth(saves_us):
        return
    yield Finding(
        kind="tensor-cores-unused",
        title=f"Half-precision GEMMs take {duration(case.per_step(gemms))} of a step without tensor cores.",
        advice="Give them contiguous, 16-byte aligned inputs; look whether another backend (cuBLASLt) has a kernel.",
        saves_us=saves_us,
        evidence=case.evidence(gemms, pl.col("name").str.slice(0, 60)),
    )


def _misaligned(case: Case, gemms: pl.DataFrame) -> Iterator[Finding]:
    if gemms.is_empty():
        return
    padded = gemms.with_columns((pl.col("m", "n", "k") / MULTIPLE).ceil().cast(pl.Int64) * MULTIPLE)
    saves_us = case.saving_us(gemms, case.modelled_us(padded))
    if not case.worth(saves_us):
        return
    yield Finding(
        kind="misaligned-shapes",
        title=f"GEMMs with n or k not a multiple of {MULTIPLE} take {duration(case.per_step(gemms))} of a step.",
        advice=f"Pad these dimensions (vocabulary, classes, channels, sequence) to multiples of {MULTIPLE}, better 64.",
        saves_us=saves_us,
        evidence=case.evidence(gemms, pl.format("m {}, n {}, k {}", "m", "n", "k")),
    )
