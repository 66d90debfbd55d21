"""Whose attention kernels ran, by their names: what ``framework`` says to the predictors."""

import polars as pl

STACKS = {
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
"""Stack -> what its kernels' names contain, the first that fits; the names are those of ``predictors.stacks``."""


def attention_stack() -> pl.Expr:
    """The stack of an attention kernel of a kernel table, null where its name doesn't tell."""
    known = pl.coalesce(
        pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(stack)) for stack, pattern in STACKS.items()
    )
    return pl.when(pl.col("family") == "attention").then(known)


def for_older_units() -> pl.Expr:
    """Whether a kernel is attention over whole sequences that programs tensor cores as an A100's are programmed.

    What decodes, a few queries over many keys, waits for memory instead.
    """
    whole = pl.col("paged").eq_missing(False) & (pl.col("q_len") >= pl.col("kv_len"))
    return ((attention_stack() == "fa2") & whole).fill_null(value=False)
