"""Whose attention kernels run, where a row's `framework` says so, and what of that another kind of GPU has."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.coded import Coded
from predictors.machine import Machine
from predictors.precision import has_tf32
from predictors.terms import Columns

SERVING_FRAMEWORKS = ("sglang", "trtllm", "vllm")
"""Those whose kernels were measured, fp8 products together with the quantisation of their input (aiconfigurator)."""

ATTENTION_STACKS = (
    "fa2",
    "fa3",
    "fa4",
    "flashinfer",
    "triton",
    "trtllm-gen",
    "cudnn",
    "memeff",
    "aotriton",
    "ck",
    "aiter",
)
"""FlashAttention by its major version, FlashInfer's own, Triton's, TensorRT-LLM's for Blackwell, cuDNN's, xFormers' and
PyTorch's memory-efficient one, and on AMD's GPUs AOTriton's, Composable Kernel's and AITER's."""

IN_A_LOOP = "benchmark"
"""What no job ran: kernels repeated in a loop, which find in the cache what fits there."""

FRAMEWORKS = (*SERVING_FRAMEWORKS, *ATTENTION_STACKS, IN_A_LOOP)
"""Every `framework` of a row that says something."""

_PYTORCH: dict[str, str | None] = {"mfma": "aotriton", "none": "memeff"}
_ELSEWHERE: dict[str, dict[str, str | None]] = {
    "fa3": {"tcgen05": "fa4", "wgmma": "fa3", "mma": "fa2"},
    "fa4": {"tcgen05": "fa4", "wgmma": "fa3", "mma": "fa2"},
    "trtllm-gen": {"tcgen05": "trtllm-gen"},
    "fa2": _PYTORCH | {"tcgen05": "fa2", "wgmma": "fa2", "mma": "fa2"},
    "cudnn": _PYTORCH | {"tcgen05": "cudnn", "wgmma": "cudnn", "mma": "cudnn"},
    "memeff": _PYTORCH | {"tcgen05": "memeff", "wgmma": "memeff", "mma": "memeff"},
    "aotriton": _PYTORCH | {"tcgen05": "fa2", "wgmma": "fa2", "mma": "fa2"},
    "ck": {"mfma": "ck"},
    "aiter": {"mfma": "aiter"},
}
"""Stacks made for some GPUs only -> class of GPUs -> what its users run there; elsewhere nobody knows. PyTorch's own
attention is FlashAttention 2 or xFormers' memory-efficient one on NVIDIA's GPUs, AOTriton on AMD's."""

_ON_PAGES = (*SERVING_FRAMEWORKS, "flashinfer", "trtllm-gen")
_ON_TENSORS = ("cudnn", "memeff", "aotriton", "ck", "aiter")
_LAWS_OF_PAGES = ("prefill", "encoder", "decode")
"""What attention was measured on: caches' pages of serving engines, or tensors of whole sequences."""

_MADE_FOR_MMA = ("fa2", "memeff")
"""Stacks that program the matrix units of every GPU as an A100's or older ones are programmed."""

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


def block_queries(frameworks: Coded) -> Floats:
    """Queries that a block works on: 128, or 64 of xFormers' kernels, as their names say ('64x64', '64x128').

    Args:
        frameworks: of each row.
    """
    return np.where(frameworks.among("memeff"), 64.0, 128.0)


def stack_on(gpu: Machine) -> pl.Expr:
    """`framework` as it is on a GPU: null where the stack has no kernels for it."""
    there = {stack: classes.get(gpu.tensor_class) for stack, classes in _ELSEWHERE.items()}
    if gpu.tensor_class == "mma" and not has_tf32(gpu.gpu):  # these two need an Ampere GPU
        there = {stack: "memeff" if runs in ("fa2", "cudnn") else runs for stack, runs in there.items()}
    # A serving engine has a choice of its own where FlashAttention 3 doesn't run.
    served = (pl.col("framework") == "fa3") & pl.col("paged").fill_null(value=True) & (gpu.tensor_class == "tcgen05")
    return pl.when(~served.fill_null(value=False)).then(pl.col("framework").replace(there))


def of_the_law() -> pl.Expr:
    """`framework` as far as the row's law knows it: engines' kernels work on a cache's pages, others on tensors."""
    unknown = ((pl.col("law") == "sequence") & pl.col("framework").is_in(_ON_PAGES)) | (
        pl.col("law").is_in(_LAWS_OF_PAGES) & pl.col("framework").is_in(_ON_TENSORS)
    )
    return pl.when(~unknown.fill_null(value=False)).then("framework")


def made_for_mma(gpu: Machine | None) -> pl.Expr:
    """Whether rows are kernels made for older matrix units than a GPU has; what decodes waits for memory on any."""
    if gpu is None or not gpu.has_later_units:
        return pl.lit(value=False)
    return pl.col("framework").is_in(_MADE_FOR_MMA).fill_null(value=False) & (pl.col("law") != "decode")
