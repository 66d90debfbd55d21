"""Kernel table -> the flat arrays that laws and features are computed on."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.kernels import complete, with_law
from predictors.law import Columns
from predictors.machine import Machine
from predictors.precision import runs_as
from predictors.work import attended, attended_keys, element_bytes, with_work

SERVING_FRAMEWORKS = ("sglang", "trtllm", "vllm")
"""Frameworks whose fp8 products were measured together with the quantisation of their input."""

_NUMBERS = (
    "batch", "m", "n", "k", "rows", "cols", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "window",
    "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "work_flops", "work_bytes",
)  # fmt: skip


def prepare(kernels: pl.DataFrame, gpu: Machine | None = None) -> pl.DataFrame:
    """The checked kernel table as it runs on a GPU: `dtype` replaced by what runs, `law` and work added.

    Args:
        kernels: the caller's table.
        gpu: where it runs; decides the dtype that is really used. None: each row runs in its `dtype`.
    """
    table = complete(kernels)
    runs = table["dtype"] if gpu is None else runs_as(table, gpu.gpu)
    table = with_law(table.with_columns(dtype=runs, asked=table["dtype"]))
    kv_dtype = pl.when(element_bytes("kv_dtype") < element_bytes("dtype")).then("kv_dtype").otherwise("dtype")
    return with_work(table.with_columns(kv_dtype=kv_dtype))


def law_columns(table: pl.DataFrame, gpu: Machine) -> Columns:
    """The numeric columns of rows that share a law.

    Args:
        table: from `prepare`.
        gpu: whose peak rate goes into `tflops`.

    Returns:
        float64 arrays, one element a row; missing numbers are 1.
    """
    copies = {kind: gpu.copy_gbps(kind) for kind in table["copy_kind"].unique().to_list()}
    rates = {dtype: gpu.tflops(dtype) for dtype in table["dtype"].unique().to_list()}
    frame = table.select(
        *(pl.col(name).fill_null(1.0) for name in _NUMBERS),
        tflops=pl.col("dtype").replace_strict(rates, default=gpu.tflops("fp32"), return_dtype=pl.Float64),
        copy_gbps=pl.col("copy_kind").replace_strict(copies, return_dtype=pl.Float64),
        size=element_bytes("dtype"),
        kv_size=element_bytes("kv_dtype"),
        attended=attended().fill_null(1.0),
        reach=attended_keys().fill_null(1.0),
        causal=pl.col("causal").cast(pl.Float64),
        passes=pl.when(pl.col("direction") == "backward").then(3.2).otherwise(1.0),
        skewed=pl.col("routing").fill_null("balanced").str.starts_with("power").cast(pl.Float64),
        quantised_input=(
            pl.col("framework").is_in(SERVING_FRAMEWORKS) & pl.col("dtype").is_in(["fp8", "fp8_block", "nvfp4"])
        ).fill_null(False).cast(pl.Float64),
    )  # fmt: skip
    return {name: np.ascontiguousarray(frame[name].to_numpy()) for name in frame.columns}
