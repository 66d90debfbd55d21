"""Infer the framework of attention kernels from their names: the ``framework`` that the predictors take."""

import polars as pl

ATTENTION_FRAMEWORKS = {
    "fa3": r"FlashAttnFwdSm90|FlashAttnBwdSm90|CollectiveMainloop(?:Fwd|Bwd)Sm90",
    "fa4": r"FlashAttention(?:Forward|Backward)Sm\d+",
    "flashinfer": r"flashinfer::",
    "trtllm-gen": r"fmhaSm10\d\w*Kernel",
    "trtllm": r"fmha_v2_|xqa_kernel|kernel_mha",
    "triton": r"kernel_unified_attention_|^_fwd_grouped_kernel_stage|^_fwd_kernel$",
    "cudnn": r"cudnn_generated_\w*sdpa",
    "fa2": r"flash_(?:fwd|bwd)_\w*kernel|Flash_(?:fwd|bwd)_kernel_traits",
    "memeff": r"fmha_cutlass[FB]|PyTorchMemEffAttention",
    "ck": r"Fmha(?:Fwd|Bwd)\w*Kernel",
    "aiter": r"aiter::fmha_(?:fwd|bwd)",
    "aotriton": r"^attn_fwd|^bwd_(?:kernel_|preprocess)",
}
"""Framework to a pattern of its kernels' names, the first that matches; the keys are those of
``predictors.attention_stacks``."""


def infer_attention_framework() -> pl.Expr:
    """Infer the framework of an attention kernel of a kernel table; null if its name doesn't show it."""
    known = pl.coalesce(
        pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(stack))
        for stack, pattern in ATTENTION_FRAMEWORKS.items()
    )
    return pl.when(pl.col("family") == "attention").then(known)


def is_ampere_attention() -> pl.Expr:
    """Return whether a kernel is attention over whole sequences with the tensor core instructions of Ampere (A100).

    Decoding, with a few queries over many keys, is excluded: it is bound by memory.
    """
    whole = pl.col("paged").eq_missing(False) & (pl.col("q_len") >= pl.col("kv_len"))
    return ((infer_attention_framework() == "fa2") & whole).fill_null(value=False)
