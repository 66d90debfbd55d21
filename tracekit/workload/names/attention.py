"""Name rules of attention: FlashAttention 2 and 3, CUTLASS's memory-efficient kernels, TensorRT-LLM's and AMD's.

FlashAttention 2 has its traits in the name: ``<head size, queries of a block, keys of a block, warps, ...>``; 3 has the
tile as ``tuple<queries, keys, head size>``.
"""

from functools import partial

from tracekit.workload.names.rule import NameRule

TYPES = {"bfloat16_t": "bf16", "half_t": "fp16", "float_e4m3_t": "fp8", "bf16": "bf16", "f16": "fp16", "f32": "fp32",
         "fp16": "fp16", "fp8": "fp8", "E4m3": "fp8", "Bfloat16": "bf16", "Fp16": "fp16", "DF16b": "bf16",
         "DF16_": "fp16", "__hip_bfloat16": "bf16", "_Float16": "fp16"}  # fmt: skip
ANY_NAME = ""
SPLIT = r"(?i)split_?kv|Split<|FlashAttnFwdCombine"
CUTE_CONSTANT = r"(?:cute::)?C<(?:\(int\))?"
INTEGER = r"(?:\((?:unsigned )?int\))?"

AITER_DTYPES = {"a8w8": "fp8", "A8W8": "fp8", "a16w16": "bf16", "A16W16": "bf16", "a16w8": "bf16", "A16W8": "bf16",
                "pa_bf16": "bf16", "pa_fp16": "fp16"}  # fmt: skip
"""Precision by the bits of queries (``a``) and keys (``w``) in the names of AMD's assembly kernels."""

_attention = partial(NameRule, family="attention", tensor_core=True)

RULES = (
    _attention(
        r"(?:\baiter::|_ZN5aiter\d+|^)(?=(?:pa|mla|PA|MLA)_)"
        rf"(?:\w*?(?P<type>{'|'.join(AITER_DTYPES)}))?(?:pa|mla|PA|MLA|\w)",
        dtypes=AITER_DTYPES,
        split=r"^(?!.*mla_pfl_)",
    ),
    _attention(
        rf"Flash_(?:fwd|bwd)_kernel_traits<{INTEGER}(?P<k>\d+), {INTEGER}(?P<m>\d+), {INTEGER}(?P<n>\d+)"
        r"(?:, .*?(?P<type>bfloat16_t|half_t))?",
        dtypes=TYPES,
        split=SPLIT,
    ),
    _attention(
        rf"CollectiveMainloop(?:Fwd|Bwd)(?:Sm\d+)?<{INTEGER}(?P<stages>\d+), (?:cute::)?tuple<.*?> ?>, "
        rf"(?:cute::)?tuple<{CUTE_CONSTANT}(?P<m>\d+)>, {CUTE_CONSTANT}(?P<n>\d+)>, {CUTE_CONSTANT}(?P<k>\d+)> ?>, "
        r".*?(?P<type>bfloat16_t|half_t|float_e4m3_t)",
        dtypes=TYPES,
    ),
    _attention(
        r"fmha_cutlass[FB]_(?P<type>bf16|f16|f32)_(?:not)?aligned_(?P<m>\d+)x(?P<n>\d+)_\w*?sm(?:75|80|90)",
        dtypes=TYPES | {"f32": "3xtf32"},
    ),
    _attention(r"fmha_cutlass[FB]_(?P<type>f16)_(?:not)?aligned_(?P<m>\d+)x(?P<n>\d+)_\w*?sm70", dtypes=TYPES),
    _attention(
        r"cudnn_generated_fort_native_sdpa_sm\d+_flash_[fb]prop(?:_(?P<type>mxfp8|fp8|f8))?"
        r"(?:\w*?_knob_\d+_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+))?",
        dtypes={"mxfp8": "fp8", "fp8": "fp8", "f8": "fp8"},
    ),
    _attention(
        r"fmhaSm\d+\w*?Kernel_Q(?:kv)?(?P<type>E4m3|Bfloat16|Fp16)\w*?H(?:Qk)?(?P<k>\d+)\w*?Q(?P<m>\d+)Kv(?P<n>\d+)",
        dtypes=TYPES,
        split="MultiCtasKv|ForGen",
    ),
    _attention(
        r"Fmha\w*Kernel.*?ProblemI(?P<type>DF16b|DF16_).*?TileFmhaShapeINS_8sequenceIJLi(?P<m>\d+)ELi(?P<n>\d+)ELi\d+ELi"
        r"(?P<k>\d+)E",
        dtypes=TYPES,
    ),
    _attention(r"fmha_(?:fwd|bwd)_hd(?P<k>\d+)(?:x\d+)?_(?:\w*?(?P<type>bf16|fp16|fp8))?", dtypes=TYPES),
    _attention(
        r"paged_attention_v[12]_kernel|flash_fwd_splitkv_mla_kernel|^_fwd_(?:grouped_)?kernel_stage\d|"
        r"^kernel_unified_attention_3d",
        split=ANY_NAME,
    ),
    _attention(
        r"flashinfer::\w*(?:With\w*KVCache|PagedAttention)\w*<(?:flashinfer::KernelTraits<\(flashinfer::MaskMode\)\d"
        rf", {INTEGER}(?P<m>\d+)u?, .*?(?P<type>__nv_bfloat16|__half|__nv_fp8_e4m3))?",
        dtypes=TYPES | {"__nv_bfloat16": "bf16", "__half": "fp16", "__nv_fp8_e4m3": "fp8"},
        split="Decode",
    ),
    _attention(r"FlashAttention(?:Forward|Backward)Sm\d+"),
    _attention(
        r"paged_attention_ll4mi_QKV_mfma\d+_kernel<\d+, (?P<type>__hip_bfloat16|_Float16)", dtypes=TYPES, split=ANY_NAME
    ),
)
