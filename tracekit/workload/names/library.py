"""Infer the library that a kernel is from, and the ``framework`` that the predictors take, by its name alone."""

import re
from collections.abc import Mapping
from functools import lru_cache

import polars as pl

from tracekit.bounds import MAX_REMEMBERED_NAMES

LIBRARY_RULES = (
    ("inductor", r"^triton_(?:poi|red|per|tem|mm|for|spl|helpers)_|^triton__\d"),
    ("rccl", r"rccl|ncclDevKernel(?:Debug)?_Generic_\d|mscclKernel"),
    ("nccl", r"^(?:void )?nccl(?!_ep)"),
    ("deepep", r"(?:deep_ep|dpsk::ep|uccl|nccl_ep|nccl_ep_jit)(?:::|_)|hybrid_?ep::"),
    ("mori", r"\bmori::|^Ep(?:Dispatch|Combine)"),
    ("nvshmem", r"nvshmem|barrier_on_stream_kernel_threadgroup"),
    ("deepgemm", r"deep_gemm::"),
    ("flash_mla", r"flash_fwd_(?:splitkv_)?mla|flash_mla|sparse_mla_fwd|"
                  r"^(?:void )?sm(?:90|100)::(?:fwd|decode|prefill)|smxx::decode|FlashMla"),
    ("flash_attention", r"flash_attncute|FlashAttention(?:Forward|Backward)Sm|FlashAttn(?:Fwd|Bwd)|flash::|"
                        r"(?:pytorch_flash|flash)::flash_|\bflash_(?:fwd|bwd)_|Flash_(?:fwd|bwd)_kernel_traits"),
    ("trtllm", r"tensorrt_llm|trtllm_(?:allreduce|alltoall|mnnvl)|fused_moe::run_global|fmhaSm\d+\w*Kernel|fmha_v2_|"
               r"^(?:bmm|gemm)_\w+_Fp32_|moe::dev::|\bxqa_kernel|^kernel_mha$|MoeFCGemm|\bmoeA2A|^moe_gemm_"),
    ("flashinfer", r"flashinfer(?!_kv_indices)"),
    ("xformers", r"fmha_cutlass[FB]|PyTorchMemEffAttention"),
    ("marlin", r"\bmarlin|Marlin<"),
    ("machete", r"machete"),
    ("vllm", r"vllm"),
    ("sglang", r"sglang|sgl_kernel|sgl_hip|\bsgl_"),
    ("transformer_engine", r"transformer_engine|userbuffers_"),
    ("apex", r"apex|cuApplyLayerNorm|multi_tensor_axpby|MixedFusedLayerNorm"),
    ("bitsandbytes", r"kgemm_4bit|kQuantizeBlockwise|kDequantizeBlockwise|kOptimizer|kInt8"),
    ("fbgemm", r"fbgemm"),
    ("torch", r"^elementwise kernel of aten::"
              r"|at::native|at::cuda|at::to_dense|^(?:void )?\(anonymous namespace\)::(?:elementwise|softmax_warp|"
              r"multimem_|one_shot|two_shot)|\btorch::|_ZN2at|cunn_|vision::ops|cudnn_batchnorm_legacy"),
    ("cudnn", r"cudnn|implicit_convolve|implicit_gemm|convolve_|wgrad_alg|dgrad_engine|fprop|_scudnn_|RNN_|elemWiseRNN|"
              r"persistRNN_|nchwToNhwc|nhwcToNchw|bn_(?:fw|bw)_|cask_"),
    ("cusparselt", r"cusparselt"),
    ("cublas", r"nvjet|xmma_gemm|cublas|gemvx|gemv(?:2T|NSP)|gemmSN_|gemmk1_|\bdot_kernel<|splitKreduce|"
               r"^kernel of aten::(?:mm|bmm|addmm|baddbmm|mv|addmv)_?$|"
               r"^(?:void )?(?:maxwell|volta|turing|ampere|ada|hopper)_\w*gemm"),
    ("cutlass_dsl", r"kernel_cutlass_kernel_"),
    ("cutlass", r"cutlass"),
    ("opus", r"\bopus_"),
    ("ck", r"\bck::|ck_tile|_ZN2ck|_ZN7ck_tile|\bFmha(?:Fwd|Bwd)"),
    ("aiter", r"aiter|^(?:void )?kn_|^mla_(?:a\d+w\d+|dec_|pfl_)|^fmha_(?:fwd|bwd)_hd\d+|^fmoe_|"
              r"^(?:bf16|fp8|f4|i8)gemm_"),
    ("tensile", r"Cijk_"),
    ("miopen", r"miopen|MIOpen|igemm_(?:fwd|bwd|wrw)_|batched_transpose_\d|naive_conv_|Im2d2Col|SubTensorOp|"
               r"gridwise_generic_reduce|OpTensor|Op\dd?TensorGeneric|winograd\w*Fury|ConvAsm|"
               r"transpose_(?:NCHW2CNHW|CNHW2NCHW)"),
    ("rocprim", r"rocprim"),
    ("cub", r"\bcub::|thrust|DeviceRadixSort|DeviceScan|_ZN3cub"),
    ("tilelang", r"tilelang|^main_kernel$"),
    ("mamba", r"selective_scan_|^_(?:chunk_(?:state|scan|cumsum)|bmm_chunk|state_passing|selective_scan_update)|_ssu_"),
    ("causal_conv1d", r"^(?:void )?causal_conv1d_"),
    ("fla", r"gated_delta|delta_rule|^chunk_|^fused_recurrent|recompute_w_u|wy_repr|solve_tril|^merge_16x16|"
            r"^parallel_\w+_(?:fwd|bwd)|^(?:kda|gdn)_|^fused_chunk_|^l2norm_|\bkda_"),
    ("liger", r"^liger_|_swiglu_forward_kernel|_swiglu_backward_kernel"),
    ("aotriton", r"^attn_fwd|^bwd_(?:kernel_|preprocess)"),
    ("triton_kernels", r"matmul_ogs|_combined_routing|bitmatrix|_expt_data|_finalize_matmul_scatter"),
    ("hip", r"__amd_rocclr|^rocclr"),
)  # fmt: skip
_LIBRARY_PATTERNS = tuple((library, re.compile(pattern)) for library, pattern in LIBRARY_RULES)


@lru_cache(MAX_REMEMBERED_NAMES)
def infer_library(kernel: str) -> str | None:
    """Infer the library from a kernel's name; ``None`` if the name doesn't show it."""
    return next((library for library, pattern in _LIBRARY_PATTERNS if pattern.search(kernel)), None)


CK_KERNEL, AITER_KERNEL = r"\bck::|\bck_tile|_ZN2ck|_ZN7ck_tile", r"_ZN5aiter|\baiter::|^(?:bf16|fp8|f4|i8)gemm_|^fmoe_"
"""Products and experts of AMD's Composable Kernel and of AITER, by parts of their names."""
ATTENTION_FRAMEWORKS = {
    "fa3": r"FlashAttnFwdSm90|FlashAttnBwdSm90|CollectiveMainloop(?:Fwd|Bwd)(?:Sm90)?",
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
``predictors.kernel_identity``."""
GEMM_FRAMEWORKS = {
    "cublas": r"^kernel of aten::(?:mm|bmm|addmm|baddbmm|mv|addmv)_?$|"
    r"nvjet_|xmma_gemm|cublas|gemvx|gemv(?:2T|NSP)|gemmSN_|gemmk1_|\bdot_kernel<|"
    r"cutlass_\d+_(?:(?:wmma_)?tensorop|simt)|^(?:void )?(?:maxwell|volta|turing|ampere|ada|hopper)_\w*gemm",
    "hipblaslt": r"Cijk_",
    "flydsl": r"^flydsl_",
    "ck": CK_KERNEL,
    "aiter": AITER_KERNEL,
}
"""The same of matrix products; cuBLAS has kernels of CUTLASS, too."""
MOE_FRAMEWORKS = {
    "flydsl": r"^flydsl_",
    "ck": CK_KERNEL,
    "aiter": AITER_KERNEL,
    "triton": r"^_?fused_moe_kernel|^_(?:p_)?matmul_ogs_",
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
