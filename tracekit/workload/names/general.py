"""Infer family and precision by general rules, tried in order on the name as the trace has it."""

import re
from functools import lru_cache

from tracekit.bounds import MAX_REMEMBERED_NAMES

# Rows of family and pattern. Specific ones come first; "elementwise" and "reduction" match PyTorch's generic kernels.
FAMILY_RULES = (
    (
        "collective",
        r"nccl|rccl|nvshmem|msccl|quickreduce|userbuffers_|cross_device_reduce|all_?reduce_|_all_?reduce|multimem_|"
        r"all_to_all_",
    ),
    (
        "copy",
        r"reshape_and_cache|store_(?:mla_)?kv_?cache|store_?kvcache|store_cache|append_?paged_?kv|"
        r"con?cat_?(?:and_cache_)?(?:ds_)?mla|[gs]et_mla_kv|cat_and_cache_mla|slot_mapping|expand_to_fused|"
        r"quantize_and_insert_k|gather_kv|gather_cache|cp_gather|_repack_kernel|"
        r"utils::transpose",
    ),
    (
        "elementwise",
        r"rotary_embedding|rope_kernel|applyBiasRope|computeStrides|get_group_gemm_starts|"
        r"fill_tensormaps|init_device_workspace|swiglu_and_|quantize_with_block_size|FP8rowwise_to_float|Fused8Bit|"
        r"elemWiseRNN|persistRNN_|LSTM(?:Fwd|Bwd)HidUpdate|cudnn::initstates|distribution_elementwise|"
        r"silu_mul_\w*quant|do(?:Gated)?Activation",
    ),
    ("softmax", r"topk_?softmax|topkGating|cross_entropy"),
    ("copy", r"expandInputRows"),
    (
        "reduction",
        r"gemm_\w*_reduce_kernel|bmm_reduce_kernel|gather(?:TopK|Median|KthValue)|moe_?sum|moe_?sorting|moe_align|\bNorm(?:Zero|One|Two)?Ops|WelfordOps|lpnorm_cleanup|"
        r"finalizeMoeRouting|moe_?(?:finalize|reduction)|moe::dev::(?:finalize|routing)|moe_?routing|_finalize_matmul_scatter|ExpertPrefixSum|count_expert|ExpertMaps|"
        r"sort_expert_tokens|grouped_topk|_combined_routing|bitmatrix|RenormProb|SamplingFrom|sampleMultinomial|"
        r"_sample_kernel|get_mla_metadata|mqa_logits_metadata|prepare_varlen_num_blocks|get_dispatch_layout|get_fused_mapping",
    ),
    (
        "attention",
        r"sage_fwd|sparse_attn|sparse_mla|\bmla_|_mla_|mqa_logits|_nsa_|sdpa|flash|fmha|merge_?(?:attn_?)?states?|"
        r"^_?pa_(?:decode|prefill)|^reduce_segments$|attention|_attn|mha_|kernel_mha|With(?:Paged|Ragged)KVCache|\bxqa|AttnFwd|attn_fwd|attn_bwd|do_o_dot|dot_do_o|"
        r"^bwd_kernel_|^_?bwd_preprocess|^_(?:fwd|bwd)_kernel(?:_unified|_splitK|_d[kqv]\w*)?$|mla_reduce",
    ),
    ("moe", r"moe|grouped_?gemm|expert|_matmul_ogs"),
    ("copy", r"multi_tensor_apply_kernel<.*\bCopy(?:Functor)?<"),
    ("optimizer", r"multi_tensor_apply|adam|adagrad|lamb_|\bkOptimizer"),
    (
        "copy",
        r"scalePackedTensor|nchwToNhwc|nhwcToNchw|tensorTransform|SubTensorOp|transpose|batched_transpose|convertTensor",
    ),
    (
        "norm",
        r"norm|_rms_|bn_fw|bn_bw|BatchNorm|RowwiseMoments|welford|GammaBeta|ComputeInternalGradients|FusedParamsCUDA",
    ),
    ("softmax", r"soft_?max"),
    (
        "reduction",
        r"bounds_check_indices|_get_FP8_qparam|split_?k_?reduce|reduce_?splitk|reduce_wgrad|SplitKOffsets|gemvx?.*reduce",
    ),
    ("embedding", r"embedding|indexSelect|EmbeddingBag"),
    (
        "conv",
        r"conv(?!ert)|wgrad|dgrad|fprop|winograd|scudnn|hcudnn|im\d?d?2col|col2im|igemm_|miopenSp3|gridwise_.*_bwd|Conv_",
    ),
    (
        "gemm",
        r"gemm|gemv|scaled_mm|marlin|machete|cutlass|nvjet|Cijk_|matmul|wvSpltK|wvSplitK|triton_tem|dot_kernel|cublas|"
        r"lora_(?:shrink|expand)|dotprod|\bX(?:XT|TX)_kernel|\bba_plus_cAA",
    ),
    (
        "copy",
        r"copy|CatArray|chunk_cat|gather|scatter|index_|indexing|permute|triu|tril|roll_|flip|memcpy|rocclr|"
        r"(?:reflection|replication)_pad|AddPadding|DeviceSelect|DevicePartition|write_indices|shuffleRows|"
        r"\bcompute_cuda_kernel<",
    ),
    (
        "reduction",
        r"reduce|reduction|triton_(red|per)|nll_loss|NLLCriterion|ctc_loss|scan|cumsum|cumprod|arg(max|min)|sort|topk|pool|"
        r"(?:average|max)_?gradinput|roi_align|nms_kernel|histogram|unique|RunLengthEncode|amax_kernel|krn_partial",
    ),
    (
        "elementwise",
        r"elementwise|pointwise|unary_kernel|parallel_?for|triton_|distribution|dropout|act_and_mul|gated_act|swiglu|geglu|"
        r"silu|gelu|element_mul|transform_bias|amp_update|rotary|rope|fill|quant|cast|Functor|upsample|grid_sampler|clamp_|"
        r"epilogue::impl|\b_fg_kernel|_DWf_DW_dfg|_(?:exact|approx)_(?:for|back)ward_kernel|op_?(?:generic_)?tensor|"
        r"op\dd_?tensor|add_tensor_kernel|clean_logits|penalties|gating|\b(?:regular|vector|multi_bluestein)_fft",
    ),
)
# Names are matched in lower case, which takes a third of the time of patterns that ignore it.
_FAMILY_PATTERNS = tuple((family, re.compile(pattern.lower())) for family, pattern in FAMILY_RULES)

# PyTorch's elementwise kernels: group 1 in the names of those that load many elements at once, of tensors that lie as
# they are gone through, if no type of theirs says otherwise. The others work out where each element lies; those that
# cast as they load or store look up its type.
_ELEMENTWISE_KERNEL = re.compile(
    r"(?:(vectorized_(?:templated_)?|unrolled_|modern::)|\b|\d|index_|scatter_gather_)"
    r"elementwise_kernel(?!_with_index|[a-z])"
)
_OFFSET_CALCULATOR = re.compile(r"\bOffsetCalculator<|(?:Load|Store)WithCast<")
# Its joins, of which those of aligned tensors move 16 bytes at once: group 1.
_JOIN = re.compile(r"CatArrayBatchedCopy(_aligned|_vectorized)?")
# Its own kernels that go over windows: of depthwise convolutions and of pooling.
_WINDOW_KERNEL = re.compile(
    r"\bconv_depthwise[23]d|\b(?:atomic_?)?(?:adaptive_?)?(?:max|avg|average)_?(?:pool|gradinput)"
)

# Marlin's numbers are vLLM's ids of its compute types (ScalarType::id): bits of exponent, mantissa, sign.
DTYPE_RULES = (
    ("nvfp4", r"float_e2m1_t.*float_ue4m3_t|nvfp4"),
    ("mxfp4", r"float_e2m1_t.*float_ue8m0_t|mxfp4|afp4_?wfp4|_a4w4"),
    ("mxfp8", r"float_e4m3_t.*float_ue8m0_t|mxfp8"),
    ("fp8", r"e4m3|e5m2|fp8|_F8|w8_?a8_(?:\w+_)?block|block_scaled_mm|a8w8_(?:block|a_per_token_group)"),
    ("bf16", r"bf16|bfloat16|DF16b|_BBS_|_BB_|Marlin<(?:\(long\))?1125899906909960"),
    ("tf32", r"tf32|tensorop_s1688|_s1688gemm_(?!bf16|fp16|f16)"),
    ("fp16", r"fp16|f16|half|h884|s884|h1688|hgemm|hcudnn|_HHS_|_HH_|Marlin<(?:\(long\))?1125899906910725"),
    ("fp64", r"double|dgemm|d884"),
    ("int8", r"int8|i8816|imma|s8_"),
    ("fp32", r"float|fp32|sgemm|scudnn|ffma|simt_s|f32|_S_B_|_SB_"),
)
_DTYPE_PATTERNS = tuple((dtype, re.compile(pattern.lower())) for dtype, pattern in DTYPE_RULES)

# A number that isn't an array, in a C++ function's arguments: no data.
_SCALAR_ARGUMENT = re.compile(r"(?<=[(,])\s?double(?=[,)][^(<>]*$)")

# Kernels over lists have the type that they compute in before their optimizer's arguments, which are double.
LIST_KERNEL_DTYPE = re.compile(r"multi_tensor_apply.*?Functor\w*<(float|double|c10::Half|c10::BFloat16)\b")
CPP_DTYPES = {"float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16"}

# PyTorch's copies only have the size of an element in their name; its concatenations had a type until 2024. A list of
# tensors has no other source of it.
_COPY_ELEMENT = re.compile(
    r"OpaqueType<(?:\([a-z ]+\))?(\d+)|CatArrayBatchedCopy\w*<(bool|signed char|unsigned char|short|int|long)\b"
)
_COPY_ELEMENT_BYTES = {"bool": 1, "signed char": 1, "unsigned char": 1, "short": 2, "int": 4, "long": 8}

# Namespaces in torch's mangled and templated names would match the rules above by mistake; vLLM's names have an fp8
# type for caches that aren't fp8 (0).
_NOISE = re.compile(
    r"kernel_cutlass_kernel_|fbgemm|flashinfer(?:::)?|deep_gemm::|cutlass_kernels::|at::native::|std::|c10::|"
    r"\(anonymous namespace\)::|cuda_kernel_impl|Fp8KVCacheDataType\)0|_fp8_i8"
)


def match_family(kernel: str) -> str | None:
    """Match the family rules on a kernel's name; ``None`` if no rule matches."""
    name = _NOISE.sub("", kernel).lower()
    return next((family for family, pattern in _FAMILY_PATTERNS if pattern.search(name)), None)


def match_dtype(kernel: str) -> str | None:
    """Match the precision rules on a kernel's name; ``None`` if no rule matches."""
    over_lists = LIST_KERNEL_DTYPE.search(kernel)
    if over_lists:
        return CPP_DTYPES[over_lists.group(1)]
    name = _SCALAR_ARGUMENT.sub("", _NOISE.sub("", kernel)).lower()
    return next((dtype for dtype, pattern in _DTYPE_PATTERNS if pattern.search(name)), None)


@lru_cache(MAX_REMEMBERED_NAMES)
def infer_item_bytes(kernel: str) -> int | None:
    """Infer the bytes per element from a copy's name; ``None`` if it doesn't have them."""
    moved = _COPY_ELEMENT.search(kernel)
    if moved is None:
        return None
    return int(moved[1]) if moved[1] else _COPY_ELEMENT_BYTES[moved[2]]


@lru_cache(MAX_REMEMBERED_NAMES)
def is_indexed(name: str) -> bool | None:
    """Whether a kernel of PyTorch goes element by element; ``None`` where its name doesn't tell.

    It does where it works out where each lies, or what type it has.
    """
    found = _ELEMENTWISE_KERNEL.search(name) or _JOIN.search(name)
    if found is None:
        return True if _WINDOW_KERNEL.search(name) else None
    return found[1] is None or _OFFSET_CALCULATOR.search(name) is not None


def infer_copy_kind(name: str) -> str | None:
    """Infer the direction of a copy, HtoD, DtoH, DtoD or PtoP, from CUDA's and HIP's names."""
    kind = re.search(r"\b(HtoD|DtoH|DtoD|PtoP)\b", name)
    if kind:
        return kind.group(1)
    hip = re.search(r"Copy(Host|Device)To(Host|Device)", name)
    return f"{hip.group(1)[0]}to{hip.group(2)[0]}" if hip else None


_MARLIN_ARGUMENT = r"\(?(?:long\)?)?"
_MARLIN_INPUT = rf"Marlin<{_MARLIN_ARGUMENT}\d+l?, {_MARLIN_ARGUMENT}"
_E2M1, _E4M3 = 562949953487106, 2814749767172868

WEIGHT_DTYPE_RULES = (
    ("nvfp4", rf"{_MARLIN_INPUT}{_E2M1}l?, {_MARLIN_ARGUMENT}\d+l?, {_MARLIN_ARGUMENT}{_E4M3}l?"),
    ("mxfp4", rf"{_MARLIN_INPUT}{_E2M1}l?|w(?:fp)?4_.*mxfp4|MixedInput.*float_e2m1_t|_moe_kernel_mxfp4|"
              r"a(?:8|16)w(?:mx)?fp4|_moe_gemm_a(?:8|16)w4"),
    ("fp8", rf"{_MARLIN_INPUT}{_E4M3}l?|_a16w8_blockscale"),
    ("int8", rf"{_MARLIN_INPUT}(?:1125899923621888|1125899906844672)l?|uint8b128|gptq_8bit"),
    ("int4", rf"{_MARLIN_INPUT}(?:1125899907892224|1125899906843648)l?|u?int4b8_t|u?int4b_t|"
             r"integer_subbyte<(?:\(int\))?4|integer_subbyteILi4E|awq(?!_moe)|gemm_forward_4bit|gptq_4bit|TC_int4|w4a(?:16|8)(?!_fp4)"),
)  # fmt: skip
"""Precision that weights of a GEMM are stored in, if it computes with a wider one, and pattern, tried in order.

Marlin's and Machete's types are vLLM's: ``vllm_uint4b8_t``, and numbers that pack bits of exponent and mantissa, sign,
bias and the kind of not-a-number (``ScalarType::id`` in its ``csrc/core/scalar_type.hpp``): input, weights, output and
scales.
"""
_WEIGHT_PATTERNS = tuple((dtype, re.compile(pattern, re.IGNORECASE)) for dtype, pattern in WEIGHT_DTYPE_RULES)
AMBIGUOUS_NAME = re.compile(r"gptq_awq")
"""Kernels of GPTQ and AWQ models alike, with weights of 4 or 8 bits."""


def match_weight_dtype(kernel: str) -> str | None:
    """Match the rules on a GEMM's name; ``None`` if it doesn't name narrower weights."""
    if AMBIGUOUS_NAME.search(kernel):
        return None
    return next((dtype for dtype, pattern in _WEIGHT_PATTERNS if pattern.search(kernel)), None)
