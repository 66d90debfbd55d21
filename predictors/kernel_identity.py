"""Tell whose a kernel is: the library that it comes from, the serving engine that ran it, and the engine's release.

Attention has a stack of kernels, which depends on the GPU.
"""

from __future__ import annotations

import math
import re
from functools import cache

import numpy as np
import polars as pl

from predictors.arrays import Bools, CategoricalColumn, Columns, Floats
from predictors.errors import KernelTableError
from predictors.hardware import Hardware, has_tf32

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
    "flydsl": {"mfma": "flydsl"},
    "cublas": {"mfma": "hipblaslt", "tcgen05": "cublas", "wgmma": "cublas", "mma": "cublas", "none": "cublas"},
    "hipblaslt": {"mfma": "hipblaslt", "tcgen05": "cublas", "wgmma": "cublas", "mma": "cublas", "none": "cublas"},
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

    ``on_mma`` is whether the GPU is of class 'mma'.
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

    ``on_mma`` is whether the GPU is of class 'mma', where vLLM runs FlashAttention 2 unless the cache is narrower than
    16 bits.
    """
    fa2 = frameworks.is_in("fa2") & (x["paged"] > 0)
    if on_mma:
        fa2 = fa2 | (frameworks.is_in("vllm") & (x["kv_size"] >= 2))
    return np.asarray(fa2 & ((x["heads"] == x["kv_heads"]) | (x["window"] > 0)))


def get_block_queries(frameworks: CategoricalColumn) -> Floats:
    """Queries that a block works on: 128, or 64 of xFormers' kernels, as their names say ('64x64', '64x128')."""
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


ATTENTION_LAWS = ("prefill", "encoder", "sequence", "decode", "latent")

AMD_LIBRARIES = ("hipblaslt", "ck", "aiter", "flydsl")
"""Libraries of AMD's matrix products: hipBLASLt and rocBLAS, whose kernels one generator makes; Composable Kernel with
its tile language; AITER's own, in assembly or Triton; and FlyDSL."""
GEMM_LIBRARIES = ("cublas", "cutlass", "deepgemm", "cutedsl", "flashinfer", "triton", *AMD_LIBRARIES)
"""Libraries of matrix products: cuBLAS(Lt), CUTLASS, DeepGEMM, CuTe DSL, FlashInfer's choice among several, Triton."""
MOE_LIBRARIES = ("triton", "cutlass", "trtllm-gen", "deepgemm", "cutedsl", "min-latency", *AMD_LIBRARIES[1:])
"""Libraries of grouped matrix products; 'min-latency' is TensorRT-LLM's mode for a few tokens."""
FRAMEWORKS = tuple(
    dict.fromkeys((*SERVING_FRAMEWORKS, *ATTENTION_STACKS, *GEMM_LIBRARIES, *MOE_LIBRARIES, "marlin", BENCHMARK_LOOP))
)
"""Every `framework` of a row that says something."""

IDENTITY_COLUMNS = ("framework", "engine", "release")
"""Columns of a completed kernel table that tell whose a kernel is."""

SERVED_FORMATS = ("half", "fp8", "fp8_block", "nvfp4")
"""Second word of the laws of products whose kernels were measured in serving engines."""
NARROW_WEIGHT_FORMATS = ("w4a16", "w4a8")
"""The same of experts whose weights have 4 bits and inputs 16 or 8."""
LIBRARIES_BY_LAW = (
    dict.fromkeys((f"gemm {dtype}" for dtype in SERVED_FORMATS), GEMM_LIBRARIES)
    | dict.fromkeys((f"moe {dtype}" for dtype in SERVED_FORMATS), MOE_LIBRARIES)
    | dict.fromkeys((f"moe {dtype}" for dtype in NARROW_WEIGHT_FORMATS), (*MOE_LIBRARIES, "marlin"))
    | dict.fromkeys(ATTENTION_LAWS, ATTENTION_STACKS)
)
"""Law -> libraries that its kernels may be of."""

ATTENTION_SOURCES = {
    "fa3": "fa3", "vllm_flash_attn_fa3": "fa3", "flash_attention_v3": "fa3", "vllm_vit_flash_attn_fa3": "fa3",
    "vllm_flash_attn": "fa3", "vllm_flash_attn_fa2": "fa2", "vllm_vit_flash_attn_fa2": "fa2",
    "flash_attention_v4": "fa4", "vllm_flash_attn_fa4": "fa4", "vllm_vit_flash_attn_fa4": "fa4", "triton": "triton",
    "vllm_triton_attn": "triton", "flashinfer": "flashinfer", "torch_flow_flashinfer": "flashinfer",
    "vllm_flashinfer_fiprefill": "flashinfer", "vllm_flashinfer_fidecode": "flashinfer", "trtllm_mha": "trtllm-gen",
    "vllm_flashinfer_trtllmprefill": "trtllm-gen", "vllm_flashinfer_trtllmdecode": "trtllm-gen",
    "trtllm_mla": "trtllm-gen", "flash_attention": "fa3", "vllm_flash_attn_mla": "fa3", "vllm_triton_mla": "triton",
}  # fmt: skip
"""aiconfigurator's ``kernel_source`` -> library of an attention kernel; other names do not determine it. vLLM's own
build is FlashAttention 3 where that runs, else FlashAttention 2 (``select_stack``)."""
GEMM_SOURCES = {
    "deepgemm": r"deepgemm",
    "cutedsl": r"cutedsl",
    "cutlass": r"cutlass|sgl_kernel",
    "flashinfer": r"^flashinfer",
    "triton": r"triton",
}
"""Library -> pattern of the ``kernel_source`` of a matrix product, in lower case; the first that matches."""
CUBLAS_DTYPES = ("bf16", "fp16")
"""Formats in which every engine calls cuBLAS: its versions are 1 to 5 % apart in the median."""
MOE_SOURCES = {
    "marlin": r"marlin",
    "min-latency": r"min_latency",
    "trtllm-gen": r"_trtllm",
    "cutedsl": r"cutedsl",
    "cutlass": r"cutlass",
    "triton": r"triton",
    "deepgemm": r"deepgemm",
}
"""The same of experts."""


def list_names(law: str) -> tuple[str, ...]:
    """Return the engines and libraries that a law's kernels may be of."""
    return SERVING_FRAMEWORKS + LIBRARIES_BY_LAW.get(law, ())


@cache  # it takes longer to build than to evaluate
def restrict_framework_to_law() -> pl.Expr:
    """`framework` as far as the row's law knows it, else the engine.

    Engines' attention works on a cache's pages, other attention on tensors.
    """
    framework, law = pl.col("framework"), pl.col("law")
    elsewhere = ((law == "sequence") & framework.is_in(PAGED_STACKS)) | (
        law.is_in(PAGED_LAWS) & framework.is_in(UNPAGED_STACKS)
    )
    known = framework.is_in([*SERVING_FRAMEWORKS, BENCHMARK_LOOP]) | is_known_by_library()
    return pl.when(~elsewhere.fill_null(value=False)).then(pl.when(known).then("framework").otherwise("engine"))


def is_known_by_library() -> pl.Expr:
    """Return whether rows name a library of their law."""
    library = pl.any_horizontal(
        (pl.col("law") == law) & pl.col("framework").is_in(libraries) for law, libraries in LIBRARIES_BY_LAW.items()
    )
    return library.fill_null(value=False)


def identify_library(kernel_source: pl.Expr) -> pl.Expr:
    """Return the library that a ``kernel_source`` names; null where it does not determine one."""
    source = kernel_source.str.to_lowercase()

    def find(patterns: dict[str, str]) -> pl.Expr:
        return pl.coalesce(
            pl.when(source.str.contains(pattern)).then(pl.lit(name)) for name, pattern in patterns.items()
        )

    cublas = pl.when(source.is_not_null() & pl.col("dtype").is_in(CUBLAS_DTYPES)).then(pl.lit("cublas"))
    return (
        pl.when(pl.col("family") == "attention")
        .then(source.replace_strict(ATTENTION_SOURCES, default=None, return_dtype=pl.String))
        .when(pl.col("family") == "gemm")
        .then(pl.coalesce(cublas, find(GEMM_SOURCES)))
        .when(pl.col("family") == "moe")
        .then(find(MOE_SOURCES))
    )


def parse_releases(versions: pl.Series) -> pl.Series:
    """Return versions as numbers in their order; null where a text is no version.

    For example 0.24.0 is 2400, 1.3.0rc20 is 10299.2 and 1.3.0 is 10300.
    """
    names = versions.cast(pl.String).unique().drop_nulls().to_list()
    numbers = {name: parse_release(name) for name in names}
    return versions.cast(pl.String).replace_strict(numbers, default=None, return_dtype=pl.Float64)


@cache
def parse_release(version: str) -> float | None:
    """Return one version as a number; None if it is none."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?(?:rc|a|b|dev)(\d+))?", version.strip().lower())
    if found is None:
        return None
    major, minor, patch, candidate = (int(part) if part else 0 for part in found.groups())
    before = 1 - candidate / 100 if found[4] else 0.0
    return major * 1e4 + minor * 100 + patch - before


def format_release(release: float) -> str:
    """Return the version that ``parse_release`` reads as a number: 10299.2 is 1.3.0rc20."""
    whole = math.ceil(release - 1e-6)
    candidate = round(100 * (1 - (whole - release))) % 100
    return f"{whole // 10000}.{whole // 100 % 100}.{whole % 100}" + (f"rc{candidate}" if candidate else "")


def parse_framework(text: str) -> tuple[str, str | None]:
    """Parse 'vllm' or 'vllm==0.19.0'.

    Returns:
        The engine, and its version if one is given.

    Raises:
        KernelTableError: The engine or the version is unknown.
    """
    name, _, version = (part.strip() for part in text.lower().partition("=="))
    if name not in SERVING_FRAMEWORKS:
        raise KernelTableError(f"unknown framework: {name or text}; known: {', '.join(SERVING_FRAMEWORKS)}")
    if version and parse_release(version) is None:
        raise KernelTableError(f"unknown version: {version}; a version looks like 0.19.0")
    return name, version or None
