"""Whose attention kernels run, where a row's `framework` says so, and what of that another kind of GPU has."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.coded import Coded
from predictors.machine import Machine
from predictors.terms import Columns

SERVING_FRAMEWORKS = ("sglang", "trtllm", "vllm")
"""Those whose kernels were measured, fp8 products together with the quantisation of their input (aiconfigurator)."""

ATTENTION_STACKS = ("fa2", "fa3", "fa4", "flashinfer", "triton", "trtllm-gen", "cudnn")
"""FlashAttention by its major version, FlashInfer's own, Triton's, TensorRT-LLM's for Blackwell, and cuDNN's."""

IN_A_LOOP = "benchmark"
"""What no job ran: kernels repeated in a loop, which find in the cache what fits there."""

FRAMEWORKS = (*SERVING_FRAMEWORKS, *ATTENTION_STACKS, IN_A_LOOP)
"""Every `framework` of a row that says something."""

_ELSEWHERE: dict[str, dict[str, str | None]] = {
    "fa3": {"tcgen05": "fa4", "wgmma": "fa3", "mma": "fa2"},
    "fa4": {"tcgen05": "fa4", "wgmma": "fa3", "mma": "fa2"},
    "trtllm-gen": {"tcgen05": "trtllm-gen"},
    "cudnn": {"tcgen05": "fa4", "wgmma": "fa3", "mma": "fa2"},
}
"""Stacks made for some matrix units only -> class of GPUs -> what its users run there; elsewhere nobody knows. cuDNN's
kernels, of which none were measured, take about as long as FlashAttention's for the same units
(docs/accuracy-kernels.md)."""

_MADE_FOR_MMA = ("fa2",)
"""Stacks that program the matrix units of every GPU as an A100's are programmed."""

GROUPED_HEADS = 32
"""Query heads of one key head that TensorRT-LLM's decoding takes together at most: it reads the keys of 48 once for
each, 10 to 50 times as long on the L40S, H100 and B200 (aiconfigurator)."""


def key_reads(x: Columns, frameworks: Coded, on_mma: bool) -> Floats:
    """How often a step of decoding reads each key: once, or once for each query head that shares it.

    FlashAttention 2 takes the heads one by one where there is a window (flash_api.cpp, `seqlenq_ngroups_swapped`), and
    is what vLLM runs on GPUs whose matrix units are of class 'mma', unless the cache is narrower than 16 bits.

    Args:
        x: the sizes.
        frameworks: of each row.
        on_mma: whether the GPU is of that class.
    """
    group = x["heads"] / x["kv_heads"]
    fa2 = frameworks.among("fa2")
    if on_mma:
        fa2 = fa2 | (frameworks.among("vllm") & (x["kv_size"] >= 2))
    alone = (fa2 & (x["window"] > 0)) | (frameworks.among("trtllm") & (group > GROUPED_HEADS))
    return np.asarray(np.where(alone, group, 1.0))


def stack_on(gpu: Machine) -> pl.Expr:
    """`framework` as it is on a GPU: null where the stack has no kernels for it."""
    there = {stack: classes.get(gpu.tensor_class) for stack, classes in _ELSEWHERE.items()}
    # A serving engine has a choice of its own where FlashAttention 3 doesn't run.
    served = (pl.col("framework") == "fa3") & pl.col("paged").fill_null(value=True) & (gpu.tensor_class == "tcgen05")
    return pl.when(~served.fill_null(value=False)).then(pl.col("framework").replace(there))


def made_for_mma(gpu: Machine | None) -> pl.Expr:
    """Whether rows are kernels made for older matrix units than a GPU has; what decodes waits for memory on any."""
    if gpu is None or not gpu.has_later_units:
        return pl.lit(value=False)
    return pl.col("framework").is_in(_MADE_FOR_MMA).fill_null(value=False) & (pl.col("law") != "decode")
