"""DeepGEMM, compiled when it first runs.

``deep_gemm::sm90_fp8_gemm_1d1d_impl<4096u, 2048u, 0u, 32u, 128u, 152u, 128u, ...>``: rows, columns and depth where they
are fixed, groups, tile. On Blackwell the majors of both factors and the scales' granularity come first, groups last.
"""

import re

from tracekit.workload.names.rule import Rule

TYPES = {"fp8": "fp8", "bf16": "bf16", "tf32": "tf32"}
INTEGER = r"(?:\(unsigned int\))?"
NUMBER = rf"{INTEGER}\d+u?"
MAJOR = r"\(cute::\w+::Major\)\d, "
TILE = rf"{INTEGER}(?P<m>\d+)u?, {INTEGER}(?P<n>\d+)u?, {INTEGER}(?P<k>\d+)u?"

RULES = (
    Rule(
        re.compile(
            rf"deep_gemm::sm90_(?P<type>fp8|bf16|tf32)_gemm_\w*impl<(?:{MAJOR}){{0,2}}(?:{NUMBER}, ){{4}}{TILE}"
        ),
        "gemm",
        dtypes=TYPES,
        tensor_core=True,
    ),
    Rule(
        re.compile(
            rf"deep_gemm::sm1\d\d_(?P<type>fp8|bf16)_(?:fp\d_)?gemm_\w*impl<(?:{MAJOR}){{2}}(?:{NUMBER}, ){{5}}{TILE}"
        ),
        "gemm",
        dtypes=TYPES,
        tensor_core=True,
    ),
    Rule(
        re.compile(r"deep_gemm::\w*?(?P<type>fp8|bf16|tf32)\w*gemm\w*"),
        "gemm",
        dtypes=TYPES,
        tensor_core=True,
    ),
)
