"""Whose kernels ran, by names as traces have them."""

import polars as pl
import pytest

from predictors.kernel_identity import ATTENTION_STACKS, FRAMEWORKS
from tracekit.workload.names.library import (
    ATTENTION_FRAMEWORKS,
    GEMM_FRAMEWORKS,
    MOE_FRAMEWORKS,
    infer_framework,
)

NAMES = {
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, ...": "fa2",
    "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8, ...": "fa2",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<...": "fa3",
    "void cutlass::device_kernel<flash::FlashAttnBwd<flash::CollectiveMainloopBwd<2, cute::tuple<...": "fa3",
    "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__": "fa4",
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, ...": "flashinfer",
    "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext": "trtllm-gen",
    "fmha_v2_flash_attention_bf16_64_128_S_q_paged_kv_128_causal_sm90_kernel_nl_tiled": "trtllm",
    "kernel_unified_attention_2d": "triton",
    "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40Block...": None,
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<...": "memeff",
    "fmha_cutlassB_f16_aligned_64x64_k64_dropout_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<...": "memeff",
    "attn_fwd": "aotriton",
    "bwd_kernel_dk_dv": "aotriton",
    "_ZN7ck_tile6kentryILi1ENS_13FmhaFwdKernelINS_34BlockFmhaPipelineQRKSVSAsyncINS_24Block...": "ck",
    "aiter::fmha_fwd_hd128_bf16_rtz": "aiter",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x64x128_4x1x1_kernel0_0": "cudnn",
}


@pytest.mark.parametrize(("name", "stack"), NAMES.items())
def test_a_name_tells_its_stack(name: str, stack: str | None):
    rows = pl.DataFrame({"name": [name, name], "family": ["attention", "elementwise"]})
    assert rows.select(infer_framework())[:, 0].to_list() == [stack, None]


def test_the_predictors_know_every_stack():
    assert set(ATTENTION_FRAMEWORKS) == {*ATTENTION_STACKS, "trtllm"}
    assert {*GEMM_FRAMEWORKS, *MOE_FRAMEWORKS} <= set(FRAMEWORKS)


@pytest.mark.parametrize(
    ("family", "name", "library"),
    [
        ("gemm", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "cublas"),
        ("gemm", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute", "cublas"),
        ("gemm", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "cublas"),
        ("gemm", "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align8>", "cublas"),
        ("gemm", "void cutlass::Kernel<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(...", "cublas"),
        ("gemm", "triton_tem_fused_mm_3", None),
        ("gemm", "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64", "hipblaslt"),
        ("gemm", "_ZN5aiter42f4gemm_bf16_per1x32Fp4_BpreShuffle_128x512E", "aiter"),
        ("gemm", "void ck::kernel_gemm_xdl_cshuffle_v3_multi_d<...", "ck"),
        ("gemm", "flydsl_gemm4_abf16_wbf16_bf16_t16x64x128_split_k7", "flydsl"),
        ("moe", "_ZN5aiter48fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256E", "aiter"),
        ("gemm", "fused_moe_kernel", None),
        ("moe", "fused_moe_kernel", "triton"),
        ("moe", "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", "triton"),
        ("moe", "void tensorrt_llm::kernels::cutlass_kernels_oss::MoeFCGemm<cutlass::bfloat16_t>", "cutlass"),
        ("moe", "bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x16x128_s5_et128x16_m128x16x16_sm100f", "trtllm-gen"),
        ("moe", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", None),
    ],
)
def test_a_name_tells_the_library_of_a_product(family: str, name: str, library: str | None):
    rows = pl.DataFrame({"name": [name], "family": [family]})
    assert rows.select(infer_framework()).item() == library
