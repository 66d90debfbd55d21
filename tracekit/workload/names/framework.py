"""Infer whose a kernel is from its name: the ``framework`` that the predictors take."""

from collections.abc import Mapping

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
"""Framework to a pattern of its attention kernels' names, the first that matches; the keys are those of
``predictors.attention_stacks``."""
GEMM_FRAMEWORKS = {
    "cublas": r"^kernel of aten::(?:mm|bmm|addmm|baddbmm|mv|addmv)_?$|"
    r"nvjet_|xmma_gemm|cublas|gemvx|gemv(?:2T|NSP)|gemmSN_|gemmk1_|\bdot_kernel<|"
    r"cutlass_\d+_(?:wmma_)?tensorop|^(?:void )?(?:maxwell|volta|turing|ampere|ada|hopper)_\w*gemm",
}
"""The same of matrix products; cuBLAS has kernels of CUTLASS, too."""
MOE_FRAMEWORKS = {
    "triton": r"^_?fused_moe_kernel",
    "trtllm-gen": r"^(?:bmm|moe)_\w+_sm10\d",
    "cutlass": r"MoeFCGemm|^moe_gemm_|cutlass\S*[Gg]rouped",
    "deepgemm": r"deep_gemm::",
}
"""The same of the experts of a mixture."""
_BY_FAMILY = {"attention": ATTENTION_FRAMEWORKS, "gemm": GEMM_FRAMEWORKS, "moe": MOE_FRAMEWORKS}


def infer_framework() -> pl.Expr:
    """Infer whose a kernel of a kernel table is; null if its name doesn't show it."""
    return pl.coalesce(
        pl.when(pl.col("family") == family).then(_match_name(patterns)) for family, patterns in _BY_FAMILY.items()
    )


def _match_name(patterns: Mapping[str, str]) -> pl.Expr:
    return pl.coalesce(
        pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(name)) for name, pattern in patterns.items()
    )


def is_ampere_attention() -> pl.Expr:
    """Return whether a kernel is attention over whole sequences with the tensor core instructions of Ampere (A100).

    Decoding, with a few queries over many keys, is excluded: it is bound by memory.
    """
    whole = pl.col("paged").eq_missing(False) & (pl.col("q_len") >= pl.col("kv_len"))
    return ((infer_framework() == "fa2") & whole).fill_null(value=False)
