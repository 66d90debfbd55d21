"""Kernel names as they stand in real traces."""

import pytest

from tracekit.workload.names import infer_copy_kind, infer_dtype, infer_family, is_indexed
from tracekit.workload.op_work import classify_activity

REAL_NAMES = [
    ("ampere_sgemm_128x64_nn", "gemm", "fp32"),
    ("volta_sgemm_128x128_nt", "gemm", "fp32"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", "gemm", "bf16"),
    ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(T1::Params)", "gemm", "bf16"),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>(T1::Params)", "gemm", "tf32"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1", "gemm", "bf16"),
    ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "gemm", "fp16"),
    ("void splitKreduce_kernel<32, 16, int, float, float, float, float, true, true, false>", "reduction", "fp32"),
    ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32", "conv", "tf32"),
    ("volta_scudnn_128x64_relu_interior_nn_v1", "conv", "fp32"),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int, int)", "conv", "fp32"),
    ("miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f3x2_stride1", "conv", "fp16"),
    ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8", "conv", "bf16"),
    ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>", "copy", "fp32"),
    ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false>>",
     "attention", None),
    ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
     "attention", "bf16"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>", "norm", "bf16"),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)", "norm", "fp32"),
    ("MIOpenBatchNormFwdTrainSpatial", "norm", None),
    ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16>", "softmax",
     "bf16"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>", "elementwise",
     "bf16"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float>>>",
     "reduction", "fp32"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float, float, float>>>",
     "reduction", "fp32"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::WelfordOps<float, float, int>>>",
     "reduction", "fp32"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>>",
     "optimizer", None),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
     "TensorListMetadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor<float, 2, 1, 1>, "
     "at::native::Copy<float, float> >", "copy", "fp32"),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>", "copy", "fp32"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective", "fp32"),
    ("triton_poi_fused_add_cos_sin_0", "elementwise", None),
    ("void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)0, (cudnnRNNBiasMode_t)2>(int, int, int)",
     "elementwise", "fp32"),
    ("void RNN_elementWise_bp1<float, float, float>(int, int, int, int, T1 *)", "elementwise", "fp32"),
    ("persistRNN_addBias<float, float>", "elementwise", "fp32"),
    ("LSTMFwdHidUpdate", "elementwise", None),
    ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>", "reduction", "fp32"),
    ("void at::native::mbtopk::radixFindKthValues<float, unsigned int, unsigned int, 2>", "reduction", "fp32"),
    ("_chunk_scan_fwd_kernel", "linear_attention", None),
    ("_chunk_scan_chunk_state_bwd_dx_kernel", "linear_attention", None),
    ("_chunk_scan_bwd_dz_kernel", "linear_attention", None),
    ("_state_passing_fwd_kernel", "linear_attention", None),
    ("void causal_conv1d_channellast_bwd_kernel<Causal_conv1d_channellast_bwd_kernel_traits<128, 3, 128, false, true, "
     "float, float>, false, false, false>(ConvParamsBwd)", "linear_attention", "fp32"),
    ("triton__0d1d2d3d4d5d6d7d8d9d10d11d12d13d14", "elementwise", None),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*)",
     "elementwise", "bf16"),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>", "copy",
     "fp8"),
    ("void (anonymous namespace)::store_kvcache<2048l, 4, false, long>((anonymous namespace)::StoreKVCacheParams)",
     "copy", None),
    ("void vllm::concat_and_cache_ds_mla_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>", "copy",
     "fp8"),
    ("void vllm::ConcatMLAQKernel<c10::BFloat16, 512>(c10::BFloat16*, c10::BFloat16 const*)", "copy", "bf16"),
    ("_compute_slot_mapping_kernel", "copy", None),
    ("smxx::decode::get_mla_metadata_kernel(GetDecodeSchedMetaParams)", "reduction", None),
    ("void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*, int*, int*, bool*)", "reduction", None),
    ("void cuda::get_fused_mapping<512>(long const*, int*, int*, int*)", "reduction", None),
    ("cuda::expand_to_fused_with_scales_impl(int4 const*, int4*, float const*, float*)", "copy", "fp32"),
    ("kernel_cutlass_kernel_vllmmodel_executorkernelslinearcute_dsl_ll_bf16_dotprodLLBf16Dotprod_object_at_", "gemm",
     "bf16"),
    ("XXT_kernel", "gemm", None),
    ("XTX_kernel", "gemm", None),
    ("ba_plus_cAA_kernel", "gemm", None),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "moe", "bf16"),
    ("_finalize_matmul_scatter_bf16", "reduction", "bf16"),
    ("_combined_routing_compute", "reduction", None),
    ("_sum_bitmatrix_rows", "reduction", None),
    ("void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<__nv_bfloat16, __nv_bfloat16, (tensorrt_llm::"
     "kernels::cutlass_kernels::TmaWarpSpecializedGroupedGemmInput::FpXBlockScalingType)2, false>", "copy", "bf16"),
    ("void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<__nv_bfloat16, __nv_bfloat16>",
     "reduction", "bf16"),
    ("void vllm::moe::topkGating<8, 64, 4, 16, 32, int, __nv_bfloat16, (vllm::moe::ScoringFunc)0>", "softmax", "bf16"),
    ("void moe::dev::routing::routingIndicesOffsetsKernel<moe::dev::routing::routingRenormalize::KernelParams<"
     "__nv_bfloat16, __nv_bfloat16, 128, false, true, true> >", "reduction", "bf16"),
    ("void fused_moe::run_global<fused_moe::Fused_Moe_Kernel_sm80<cutlass::bfloat16_t, cutlass::bfloat16_t>>", "moe",
     "bf16"),
    ("fused_moe_kernel", "moe", None),
    ("void at::native::(anonymous namespace)::grid_sampler_2d_kernel<float, int>(int)", "elementwise", "fp32"),
    ("void at::native::(anonymous namespace)::ComputeFusedParamsCUDAKernel<float>(long, long)", "norm", "fp32"),
    ("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, "
     "at::native::templates::cuda::normal_and_transform<float, float> >", "elementwise", "fp32"),
    ("Im2d2Col_v2", "conv", None),
    ("void ck_tile::kentry<2, ck_tile::MoeSortingKernel<ck_tile::MoeSortingProblemEx<int, float, 2, true>>>(Kargs)",
     "reduction", "fp32"),
    ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", "attention", "fp8"),
    ("kernel_unified_attention_2d", "attention", None),
    ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>", "collective", "bf16"),
    ("_mxfp8_all_to_all_expert_major_kernel", "collective", "mxfp8"),
    ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", "norm", "bf16"),
    ("void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<(bool)0, (unsigned int)128, __half, long>",
     "elementwise", "fp16"),
    ("kernel_cutlass_kernel_flashinfergemmkernelsdense_blockscaled_gemm_sm100Sm100BlockScaledPersistent", "gemm", None),
    ("void marlin::Marlin<__nv_bfloat16, 256, 1, 8, 8, 4>(int4 const*)", "gemm", "bf16"),
    ("void marlin::Marlin<1125899906909960l, 1125899907892224l, 1125899906909960l, 1125899906909960l, 128, 1, 4, 8, "
     "true, 4, 8, false>(int4 const*, float const*)", "gemm", "bf16"),
    ("_w8a8_triton_block_scaled_mm", "gemm", "fp8"),
    ("void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, 32, int, float>(float const*)", "softmax", "fp32"),
    ("void at::native::detail::chunk_cat_cuda_kernel<float, c10::BFloat16>(float**, c10::BFloat16*)", "copy", "bf16"),
    ("void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::BFloat16>>",
     "linear_attention", "bf16"),
    ("_swiglu_forward_kernel", "elementwise", None),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
     "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, "
     "(at::native::ADAM_MODE)1, false>, float const*, double, double, double, double, double, bool>", "optimizer",
     "fp32"),
    ("void at::native::(anonymous namespace)::transform_bias_rescale_qkv_kernel<float, float, true>", "elementwise",
     "fp32"),
    ("liger_cross_entropy_kernel", "softmax", None),
    ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>(int, int)", "copy", None),
    ("void flashinfer::sampling::TopPSamplingFromProbKernel<1024u, (cub::BlockScanAlgorithm)0, float, int>",
     "reduction", "fp32"),
    ("void flashinfer::sampling::TopKRenormProbKernel<1024u, (cub::BlockReduceAlgorithm)1, 4u, float, int>",
     "reduction", "fp32"),
    ("void at::native::(anonymous namespace)::sampleMultinomialOnce<float, float>(long*, long)", "reduction", "fp32"),
    ("void flashinfer::AppendPagedKVCacheKernel<128u, 16u, __nv_bfloat16, int>", "copy", "bf16"),
    ("void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>", "copy",
     "bf16"),
    ("void at_cuda_detail::cub::DeviceSelectSweepKernel<at_cuda_detail::cub::DispatchSelectIf>", "copy", None),
    ("void at::native::(anonymous namespace)::reflection_pad2d_out_kernel<float>(float const*)", "copy", "fp32"),
    ("void compute_cuda_kernel<long>(long*, long*, long*, long, long)", "copy", None),
    ("void at::native::(anonymous namespace)::atomic_adaptive_average_gradinput<float>(float*, float const*)",
     "reduction", "fp32"),
    ("void at::native::(anonymous namespace)::adaptivemaxgradinput<float>(float*, float const*)", "reduction", "fp32"),
    ("void at::native::(anonymous namespace)::gatherMedian<float, unsigned int, 2>", "reduction", "fp32"),
    ("void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*, float*)", "reduction", "fp32"),
    ("void at::cuda::(anonymous namespace)::kernelPointwiseApply2<float, float, unsigned int, 1, -1>", "elementwise",
     "fp32"),
    ("void vllm::paged_attention_v1_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128, (vllm::Fp8KVCacheDataType)0>",
     "attention", "bf16"),
    ("kernel_cutlass_kernel_quacktopkTopK_object_at__tensorptrbf16gmem", "reduction", "bf16"),
    ("_ZN10flashinfer37BatchDecodeWithPagedKVCacheKernelILNS_15PosEncodingModeE0ELj2E", "attention", None),
    ("_ZN10fbgemm_gpu35split_embedding_codegen_forward_unweightedEvi", "embedding", None),
    ("_fbgemm_grouped_gemm_fp8_rowwise", "moe", "fp8"),
    ("_fwd_kernel", "attention", None),
    ("_fwd_kernel_splitK", "attention", None),
    ("void vision::ops::(anonymous namespace)::roi_align_forward_kernel_impl<float>(int, float const*)", "reduction",
     "fp32"),
    ("_fwd_kernel_ep_gather", "copy", None),
    ("bwd_kernel_dk_dv.kd", "attention", None),
    ("void kn_mla_reduce_v1<MlaReduceKernelV1Traits<512, 128, 1>, float, __hip_bfloat16>", "attention", "bf16"),
    ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "linear_attention", None),
    ("chunk_fwd_kernel_o", "linear_attention", None),
    ("solve_tril_16x16_kernel", "linear_attention", None),
    ("chunk_local_cumsum_scalar_kernel", "linear_attention", None),
    ("fused_recurrent_gated_delta_rule_fwd_kernel", "linear_attention", None),
    ("_lora_shrink_kernel", "gemm", None),
    ("_silu_mul_fp8_quant_deep_gemm", "elementwise", "fp8"),
    ("void deep_gemm::smxx_clean_logits<1u, 64u, 4u>(unsigned int, unsigned int)", "elementwise", None),
    ("void tensorrt_llm::kernels::cutlass_kernels::doActivationKernel<__nv_bfloat16, __nv_bfloat16>", "elementwise",
     "bf16"),
    ("_DWf_DW_dfg_kernel", "elementwise", None),
    ("void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>(float*, float*)", "optimizer", "fp32"),
    ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", "collective", "fp16"),
    ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop", "collective", "fp16"),
]  # fmt: skip


def test_real_names():
    assert [(name, infer_family(name), infer_dtype(name)) for name, *_ in REAL_NAMES] == REAL_NAMES


def test_an_unknown_kernel_is_other():
    assert classify_activity("kernel", "resolve_future_token_ids", None) == "other"


@pytest.mark.parametrize(
    ("kernel", "op", "family"),
    [
        ("ampere_sgemm_32x128_nn", "aten::cudnn_convolution", "conv"),
        ("ampere_sgemm_32x128_nn", "aten::mm", "gemm"),
        ("void at::native::elementwise_kernel<128, 4>", "aten::copy_", "elementwise"),
        ("void at::native::reduce_kernel<128, 4>", "aten::native_layer_norm_backward", "norm"),
        ("void at::native::reduce_kernel<512, 1>", "aten::frobenius_norm", "reduction"),
        ("void at::native::lpnorm_cleanup<float>", "aten::_foreach_norm", "optimizer"),
        ("void at::native::vectorized_gather_kernel<16, long>", "aten::embedding", "embedding"),
        ("my_kernel", "aten::bmm", "gemm"),
        ("triton_red_fused_mha_mean_0", "triton_red_fused_mha_mean_0", "reduction"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0", "elementwise"),
        ("void at::native::fused_dropout_kernel<float>", "aten::_fused_dropout", "elementwise"),
    ],
)
def test_the_op_tells_what_a_shared_kernel_is(kernel, op, family):
    assert classify_activity("kernel", kernel, op) == family


def test_copies_and_sets_are_what_they_are():
    assert classify_activity("memcpy", "Memcpy HtoD (Pageable -> Device)", "aten::copy_") == "memcpy"
    assert classify_activity("memset", "Memset (Device)", "aten::mm") == "memset"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
        ("Memcpy DtoH (Device -> Host)", "DtoH"),
        ("CopyHostToDevice", "HtoD"),
        ("CopyDeviceToDevice", "DtoD"),
        ("something", None),
    ],
)
def test_copy_kinds(name, kind):
    assert infer_copy_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "indexed"),
    [
        ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::", True),
        ("void at::native::elementwise_kernel_manual_unroll<128, 8, at::native::gpu_kernel_impl_nocast<", True),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ", False),
        ("void at::native::vectorized_templated_elementwise_kernel<8, at::native::", False),
        ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(", False),
        ("void at::native::modern::elementwise_kernel<at::native::", False),
        ("void at::native::unrolled_elementwise_kernel<f, Array<char*, 2>, TrivialOffsetCalculator<1, ", False),
        ("void at::native::unrolled_elementwise_kernel<f, Array<char*, 2>, OffsetCalculator<1, unsigned", True),
        ("_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastI", True),
        ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEE", False),
        ("void at::native::(anonymous namespace)::adaptive_average_pool<float>(float const*", True),
        ("void at::native::(anonymous namespace)::adaptivemaxpool<float>(float const*", True),
        ("void at::native::(anonymous namespace)::atomicadaptivemaxgradinput<float>(float*", True),
        ("void permute_pooled_embs_kernel<float>(float const*", None),
        ("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<", True),
        ("void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::", True),
        ("void (anonymous namespace)::elementwise_kernel_with_index<int, arange_cuda_out(", None),
        ("void at::native::unrolled_elementwise_kernel<f, Array<char*, 2>, 4, TrivialOffsetCalculator<1, "
         "unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, ", True),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 3, 64, 64>(", True),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<float, unsigned int, 2, 128, 1>(", True),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<OpaqueType<2u>, ", False),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<OpaqueType<2u>, ", False),
        ("ampere_sgemm_128x64_tn", None),
    ],
)  # fmt: skip
def test_which_kernels_go_element_by_element(name, indexed):
    assert is_indexed(name) is indexed
