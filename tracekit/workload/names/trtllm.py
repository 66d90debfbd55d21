"""Name rules of TensorRT-LLM's generated GEMMs, which FlashInfer and vLLM ship too.

``bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_..._TN_transOut_...``: types of output, weights and input, accumulator,
tile with its depth, stages, layouts (``B``: as ``T``, in blocks). ``transOut``: the first side of the tile lies along
the output's columns.
"""

import re

from tracekit.workload.names.rule import NameRule

TYPES = {"E4m3": "fp8", "E2m1": "nvfp4", "Bfloat16": "bf16", "Fp16": "fp16"}
LAYOUTS = {"BN": "tn"}

RULES = (
    NameRule(
        re.compile(
            r"^bmm_[A-Za-z0-9]+_\w*?(?P<type>E4m3|E2m1|Bfloat16|Fp16)_Fp32_(?:b\w+?_)?t(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?:u\d+)?"
            r"_s(?P<stages>\d+)_\w*?_(?P<layout>[BTN]{2})_transOut_"
        ),
        "moe",
        dtypes=TYPES,
        layouts=LAYOUTS,
        tensor_core=True,
        column_major=True,
    ),
    NameRule(
        re.compile(
            r"^gemm_[A-Za-z0-9]+_\w*?(?P<type>E4m3|E2m1|Bfloat16|Fp16)_Fp32_t(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?:u\d+)?"
            r"_s(?P<stages>\d+)_\w*?_(?P<layout>[BTN]{2})_transOut_"
        ),
        "gemm",
        dtypes=TYPES,
        layouts=LAYOUTS,
        tensor_core=True,
        column_major=True,
    ),
)
