"""Name rules of Triton: Inductor's fused kernels, and the GEMMs of triton_kernels (types of output, input, weights)."""

import re

from tracekit.workload.names.rule import NameRule

TYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8", "mxfp4": "mxfp4", "mxfp8": "mxfp8"}

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
        re.compile(
            r"^_(?:p_)?matmul_ogs_[NT]{3}_[a-z0-9]+?x(?P<type>bf16|fp16|fp8|mxfp8|mxfp4)[a-z0-9]*?"
            r"x(?P<weights>bf16|fp16|fp8|mxfp8|mxfp4)[a-z0-9]*?_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)x\d+"
        ),
        "moe",
        dtypes=TYPES,
        tensor_core=True,
    ),
)
