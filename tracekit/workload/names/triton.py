"""Name rules of Triton: Inductor's fused kernels, and kernels that serving engines write by hand."""

import re

from tracekit.workload.names.rule import NameRule

TYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8", "mxfp4": "nvfp4"}

RULES = (
    NameRule(
        re.compile(r"^triton_(?:red|per)_\w*(?:layer_norm|batch_norm|rms_norm|group_norm)"), "norm", tensor_core=False
    ),
    NameRule(re.compile(r"^triton_(?:red|per)_\w*softmax"), "softmax", tensor_core=False),
    NameRule(re.compile(r"^triton_poi_|^triton__\d"), "elementwise", tensor_core=False),
    NameRule(re.compile(r"^triton_(?:red|per)_"), "reduction", tensor_core=False),
    NameRule(re.compile(r"^triton_tem_fused_\w*flex_(?:attention|decoding)"), "attention", tensor_core=True),
    NameRule(re.compile(r"^triton_(?:tem|mm)_"), "gemm", tensor_core=True),
    NameRule(
        re.compile(r"^_matmul_ogs_[NT]{3}_(?P<type>bf16|fp16|fp8)x\w+?_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)x\d+"),
        "moe",
        dtypes=TYPES,
        tensor_core=True,
    ),
    NameRule(
        re.compile(
            r"^_(?:bmm_chunk_(?:fwd|bwd)|chunk_state_(?:fwd|bwd_d[bx])|chunk_scan_(?:chunk_state_bwd_dx|fwd|"
            r"bwd_(?:dstates|dcb?|dx|ddAcs_stable)))_kernel"
        ),
        "gemm",
        tensor_core=True,
    ),
    # Linear attention (fla-org/flash-linear-attention, which vLLM and SGLang copy).
    NameRule(
        re.compile(
            r"^chunk_(?!local_cumsum|global_cumsum)\w*?(?:fwd|bwd)_(?:\w+?_)?kernel|^recompute_w_u_|^prepare_wy_repr_|"
            r"^solve_tril_|^merge_16x16_to_"
        ),
        "gemm",
        tensor_core=True,
    ),
    NameRule(re.compile(r"^fused_(?:recurrent|sigmoid_gating_delta_rule)_"), "elementwise"),
    NameRule(
        re.compile(r"^_(?:state_passing|chunk_cumsum)_(?:fwd|bwd)_kernel|^_chunk_scan_bwd_dz_kernel"), "elementwise"
    ),
)
