"""Name rules of TensorRT-LLM's generated GEMMs, which FlashInfer and vLLM ship too.

``bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_..._TN_transOut_...``: types of output, weights and input, accumulator,
tile with its depth, stages, layouts (``B``: as ``T``, in blocks). ``transOut``: the first side of the tile lies along
the output's columns; without it the types of input and weights come in that order. ``Mx``: one byte of scale per 32
elements; ``E2m1`` without it has an fp8 scale per 16.
"""

import re

from tracekit.workload.names.rule import NameRule

TYPES = {"E4m3": "fp8", "E2m1": "nvfp4", "MxE4m3": "mxfp8", "MxE2m1": "mxfp4", "MxInt4": "int4", "Bfloat16": "bf16",
         "Fp16": "fp16"}  # fmt: skip
LAYOUTS = {"BN": "tn"}
TYPE = "|".join(sorted(TYPES, key=len, reverse=True))
WEIGHTS_FIRST = rf"(?P<weights>{TYPE})(?P<type>{TYPE})"
INPUT_FIRST = rf"(?P<type>{TYPE})(?P<weights>{TYPE})"
SHAPE = (
    r"_Fp32_(?:[A-Za-z]\w+?_)?t(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?:u\d+)?_s(?P<stages>\d+)(?:x\d+)*_\w*?_"
    r"(?P<layout>[BTN]{2})"
)

RULES = tuple(
    NameRule(
        re.compile(rf"^{prefix}_[A-Za-z0-9]+_{types}{SHAPE}{output}"),
        family,
        dtypes=TYPES,
        layouts=LAYOUTS,
        tensor_core=True,
        column_major=column_major,
    )
    for prefix, family in (("bmm", "moe"), ("gemm", "gemm"))
    for types, output, column_major in (
        (WEIGHTS_FIRST, "_transOut(?:_|$)", True),
        (INPUT_FIRST, "(?:_(?!trans)|$)", False),
    )
)
