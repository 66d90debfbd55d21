"""Tell which products' times contain the quantising of their input, and how it is done."""

from __future__ import annotations

from typing import TypeVar

import polars as pl

from predictors.arrays import Floats
from predictors.kernel_identity import SERVING_FRAMEWORKS
from predictors.kernels import INDEXER_LAW

QUANTISED_DTYPES = ("fp8", "fp8_block", "nvfp4")
INPUT_BYTES = 2.0
"""Bytes per element of the input before it is quantised."""
PER_TENSOR, ONE_PASS = "tensor scale", None
"""The ``part`` of a kernel that quantises: where it first finds the scale of the whole input, in a pass of its own; any
other goes through the input once."""
PER_TENSOR_ENGINE, PER_TENSOR_DTYPE = "trtllm", "fp8"
"""Whose products find the scale of the whole input: TensorRT-LLM's in fp8."""


Numbers = TypeVar("Numbers", pl.Expr, Floats)


def count_quantised_bytes(values: Numbers, size: Numbers, per_tensor: Numbers) -> Numbers:
    """Bytes that quantising reads and writes: the input once, or twice, and the result.

    Args:
        values: Elements of the input.
        size: Bytes of a quantised one.
        per_tensor: 1 where the scale of the whole input is found first, else 0.
    """
    return values * (INPUT_BYTES * (1 + per_tensor) + size)


def find_quantised_input() -> pl.Expr:
    """Whether a served product was timed with the quantising of its input, of rows with ``in_job``.

    That of batched products stays part of their times: it was timed for none of them. What an indexer multiplies is in
    fp8 already.
    """
    served = pl.col("engine").is_in(SERVING_FRAMEWORKS) & pl.col("dtype").is_in(QUANTISED_DTYPES)
    alone = (pl.col("family") == "gemm") & (pl.col("batch") == 1) & pl.col("part").ne_missing(INDEXER_LAW)
    return (served & alone).fill_null(value=False)


def scales_whole_input() -> pl.Expr:
    """Whether the quantising of a served product's input finds the scale of all of it first."""
    return (pl.col("engine") == PER_TENSOR_ENGINE) & (pl.col("dtype") == PER_TENSOR_DTYPE)
