"""Choose the attention stack that runs on a GPU, given a row's ``framework``."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Bools, Columns, Floats
from predictors.categorical import CategoricalColumn
from predictors.hardware import Hardware
from predictors.precision import has_tf32

SERVING_FRAMEWORKS = ("sglang", "trtllm", "vllm")
"""Serving frameworks with measured kernels. fp8 GEMMs include the quantization of their input (aiconfigurator)."""

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
"""FlashAttention by its major version, FlashInfer's own kernels, Triton's, TensorRT-LLM's for Blackwell, cuDNN's, the
memory-efficient kernels of xFormers and PyTorch, and on AMD GPUs those of AOTriton, Composable Kernel and AITER."""

BENCHMARK_LOOP = "benchmark"
"""What no job ran: kernels repeated in a loop, which find in the cache what fits there."""

_PYTORCH_ATTENTION: dict[str, str | None] = {"mfma": "aotriton", "none": "memeff"}
_STACK_BY_TENSOR_CLASS: dict[str, dict[str, str | None]] = {
    "fa3": {"tcgen05": "fa4", "wgmma": "fa3", "mma": "fa2"},
    "fa4": {"tcgen05": "fa4", "wgmma": "fa3", "mma": "fa2"},
    "trtllm-gen": {"tcgen05": "trtllm-gen"},
    "fa2": _PYTORCH_ATTENTION | {"tcgen05": "fa2", "wgmma": "fa2", "mma": "fa2"},
    "cudnn": _PYTORCH_ATTENTION | {"tcgen05": "cudnn", "wgmma": "cudnn", "mma": "cudnn"},
    "memeff": _PYTORCH_ATTENTION | {"tcgen05": "memeff", "wgmma": "memeff", "mma": "memeff"},
    "aotriton": _PYTORCH_ATTENTION | {"tcgen05": "fa2", "wgmma": "fa2", "mma": "fa2"},
    "ck": {"mfma": "ck"},
    "aiter": {"mfma": "aiter"},
}
"""Stack that is made for some GPUs only -> class of matrix units -> stack that its users run there; unknown elsewhere.
PyTorch's own attention is FlashAttention 2 or the memory-efficient kernel of xFormers on NVIDIA GPUs, AOTriton on AMD.
"""

PAGED_STACKS = (*SERVING_FRAMEWORKS, "flashinfer", "trtllm-gen")
UNPAGED_STACKS = ("cudnn", "memeff", "aotriton", "ck", "aiter")
PAGED_LAWS = ("prefill", "encoder", "decode", "latent")
"""What attention was measured on: caches' pages of serving engines, or tensors of whole sequences."""

_MMA_STACKS = ("fa2", "memeff")
"""Stacks that program the matrix units of every GPU as an A100's or older ones are programmed."""

MAX_GROUPED_HEADS = 32
"""Query heads of one key head that TensorRT-LLM's decoding takes together at most: it reads the keys of 48 once for
each, 10 to 50 times as long on the L40S, H100 and B200 (aiconfigurator)."""


def count_key_reads(x: Columns, frameworks: CategoricalColumn, on_mma: bool) -> Floats:
    """How often a step of decoding reads each key: once, or once for each query head that shares it.

    FlashAttention 2 handles the heads one by one if there is a window (flash_api.cpp, ``seqlenq_ngroups_swapped``).
    vLLM runs it on GPUs whose matrix units are of class 'mma', unless the cache has less than 16 bits per element.

    Args:
        x: Columns of the law.
        frameworks: Framework of each row.
        on_mma: Whether the GPU is of class 'mma'.
    """
    group = x["heads"] / x["kv_heads"]
    fa2 = frameworks.is_in("fa2")
    if on_mma:
        fa2 = fa2 | (frameworks.is_in("vllm") & (x["kv_size"] >= 2))
    alone = (fa2 & (x["window"] > 0)) | (frameworks.is_in("trtllm") & (group > MAX_GROUPED_HEADS))
    return np.asarray(np.where(alone, group, 1.0))


def is_unsplit(x: Columns, frameworks: CategoricalColumn, on_mma: bool) -> Bools:
    """Whether decoding from pages goes through all keys of a query head in one block.

    FlashAttention 2 splits the keys over blocks only where it takes the query heads of one key head together: not if
    there are as many key heads, nor with a window (flash_api.cpp, ``mha_varlen_fwd``). Kernels on tensors of whole
    sequences always split.

    Args:
        x: Columns of the law.
        frameworks: Framework of each row.
        on_mma: Whether the GPU is of class 'mma', where vLLM runs FlashAttention 2 unless the cache is narrower than 16
            bits.
    """
    fa2 = frameworks.is_in("fa2") & (x["paged"] > 0)
    if on_mma:
        fa2 = fa2 | (frameworks.is_in("vllm") & (x["kv_size"] >= 2))
    return np.asarray(fa2 & ((x["heads"] == x["kv_heads"]) | (x["window"] > 0)))


def get_block_queries(frameworks: CategoricalColumn) -> Floats:
    """Queries that a block works on: 128, or 64 of xFormers' kernels, as their names say ('64x64', '64x128').

    Args:
        frameworks: of each row.
    """
    return np.where(frameworks.is_in("memeff"), 64.0, 128.0)


def select_stack(gpu: Hardware) -> pl.Expr:
    """`framework` as it is on a GPU: the engine, or null, where the stack has no kernels for it."""
    there = {stack: classes.get(gpu.tensor_class) for stack, classes in _STACK_BY_TENSOR_CLASS.items()}
    if gpu.tensor_class == "mma" and not has_tf32(gpu.gpu):  # these two need an Ampere GPU
        there = {stack: "memeff" if runs in ("fa2", "cudnn") else runs for stack, runs in there.items()}
    # Where FlashAttention 3 does not run, each serving engine chooses another stack.
    served = (pl.col("framework") == "fa3") & pl.col("paged").fill_null(value=True) & (gpu.tensor_class == "tcgen05")
    runs = pl.when(~served.fill_null(value=False)).then(pl.col("framework").replace(there))
    return pl.coalesce(runs, "engine")


def is_made_for_mma(gpu: Hardware | None) -> pl.Expr:
    """Whether rows are kernels made for older matrix units than a GPU has; what decodes waits for memory on any."""
    if gpu is None or not gpu.has_newer_matrix_units:
        return pl.lit(value=False)
    return pl.col("framework").is_in(_MMA_STACKS).fill_null(value=False) & ~pl.col("law").is_in(["decode", "latent"])
