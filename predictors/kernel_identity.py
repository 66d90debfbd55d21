"""Tell whose a kernel is: the library that it comes from, the serving engine that ran it, and the engine's release."""

from __future__ import annotations

import re
from functools import cache

import polars as pl

from predictors.attention_stacks import (
    ATTENTION_STACKS,
    BENCHMARK_LOOP,
    PAGED_LAWS,
    PAGED_STACKS,
    SERVING_FRAMEWORKS,
    UNPAGED_STACKS,
)
from predictors.errors import KernelTableError

ATTENTION_LAWS = ("prefill", "encoder", "sequence", "decode", "latent")

GEMM_LIBRARIES = ("cublas", "cutlass", "deepgemm", "cutedsl", "flashinfer", "triton")
"""Libraries of matrix products: cuBLAS(Lt), CUTLASS, DeepGEMM, CuTe DSL, FlashInfer's choice among several, Triton."""
MOE_LIBRARIES = ("triton", "cutlass", "trtllm-gen", "deepgemm", "cutedsl", "min-latency")
"""Libraries of grouped matrix products; 'min-latency' is TensorRT-LLM's mode for a few tokens."""
FRAMEWORKS = tuple(
    dict.fromkeys((*SERVING_FRAMEWORKS, *ATTENTION_STACKS, *GEMM_LIBRARIES, *MOE_LIBRARIES, BENCHMARK_LOOP))
)
"""Every `framework` of a row that says something."""

IDENTITY_COLUMNS = ("framework", "engine", "release")
"""Columns of a completed kernel table that tell whose a kernel is."""

SERVED_FORMATS = ("half", "fp8", "fp8_block", "nvfp4")
"""Second word of the laws of products whose kernels were measured in serving engines."""
LIBRARIES_BY_LAW = (
    dict.fromkeys((f"gemm {dtype}" for dtype in SERVED_FORMATS), GEMM_LIBRARIES)
    | dict.fromkeys((f"moe {dtype}" for dtype in SERVED_FORMATS), MOE_LIBRARIES)
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
build is FlashAttention 3 where that runs, else FlashAttention 2 (``attention_stacks.select_stack``)."""
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
