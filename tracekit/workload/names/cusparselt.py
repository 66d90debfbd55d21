"""Name rules of cuSPARSELt: GEMMs with a 2:4 sparse operand, named like cuBLAS's xmma kernels."""

import re

from tracekit.workload.names.cublas import LAYOUT, SPLIT, XMMA, XMMA_TILE, XMMA_TYPES
from tracekit.workload.names.rule import NameRule

RULES = (
    NameRule(
        re.compile(rf"xmma_sparse_gemm_{XMMA_TYPES}_{LAYOUT}_[nt]_{XMMA_TILE}"),
        "gemm",
        dtypes=XMMA,
        tensor_core=True,
        split=SPLIT,
    ),
)
