"""Name rules of Triton: Inductor's fused kernels, and the GEMMs of triton_kernels (types of output, input, weights)."""

from tracekit.workload.names.rule import NameRule

TYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8", "mxfp4": "mxfp4", "mxfp8": "mxfp8"}

TRITON_RULES = (
    NameRule(r"^triton_(?:red|per)_\w*(?:layer_norm|batch_norm|rms_norm|group_norm)", "norm", tensor_core=False),
    NameRule(r"^triton_(?:red|per)_\w*softmax", "softmax", tensor_core=False),
    NameRule(r"^triton_poi_|^triton__\d", "elementwise", tensor_core=False),
    NameRule(r"^triton_(?:red|per)_", "reduction", tensor_core=False),
    NameRule(r"^triton_tem_fused_\w*flex_(?:attention|decoding)", "attention", tensor_core=True),
    NameRule(r"^triton_(?:tem|mm)_", "gemm", tensor_core=True),
    NameRule(
        r"^_(?:p_)?matmul_ogs_[NT]{3}_[a-z0-9]+?x(?P<type>bf16|fp16|fp8|mxfp8|mxfp4)[a-z0-9]*?"
        r"x(?P<weights>bf16|fp16|fp8|mxfp8|mxfp4)[a-z0-9]*?_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)x\d+",
        "moe",
        dtypes=TYPES,
        tensor_core=True,
    ),
)


MATRIX_KERNEL = (
    r"^_?bmm_chunk_|^_chunk_state_(?:varlen|fwd|bwd_d[bx])|^_chunk_scan_(?:chunk_state_bwd_dx|fwd|"
    r"bwd_(?:dstates|dcb?|dx|ddAcs_stable))|"
    r"^_?chunk_(?!local_cumsum|global_cumsum|gate|cat|cumsum|cumprod)\w*?(?:fwd|bwd|o_opt)\w*|^_?recompute_w_u_|^wu_fwd_|"
    r"^prepare_\w*wy_repr_|solve_tril|^merge_16x16_to_|^fused_chunk_(?!local)|^parallel_(?:delta|simple_gla|based|rebased)_|"
    r"^_flash_kda_|^kda_\w*intra|lightning_attn|linear_attn_(?:fwd|bwd)|_lightning_indexer_gdn"
)
"""Kernels that multiply matrices inside chunks of tokens."""
PASS_KERNEL = (
    r"gated_?delta|delta_?rule|delta_?net|delta_attn|\b_?kda_|_kda_|\b_?gdn_|_gdn_|gdn2|qkvzba|fused_recurrent_|causal_conv1d|"
    r"short_conv|selective_(?:scan|state_update)|^_chunk_(?:cumsum|scan_bwd_dz)|^_state_passing_|^chunk_\w*(?:cumsum|gate)|"
    r"\bssd_|_ssu_|mamba|\brwkv\d?_|chunk_comba_|_mesa_net_"
)

LINEAR_ATTENTION_RULES = (
    NameRule(MATRIX_KERNEL, "linear_attention", tensor_core=True),
    NameRule("(?i)" + PASS_KERNEL, "linear_attention", tensor_core=False),
)
"""Linear attention and state-space layers: delta rules, Mamba, and the short convolution before them.

Most are Triton functions of fla-org/flash-linear-attention and state-spaces/mamba, which vLLM, SGLang and aiter copy.
GEMMs inside chunks run on tensor cores; scans, gates and convolutions go through memory once.
"""

RULES = (*TRITON_RULES, *LINEAR_ATTENTION_RULES)
