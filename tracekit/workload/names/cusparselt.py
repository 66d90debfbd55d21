"""cuSPARSELt: GEMMs with a 2:4 sparse operand, named as cuBLAS's xmma kernels are."""

import re

from tracekit.workload.names.cublas import LAYOUT, SPLIT, XMMA, XMMA_TILE, XMMA_TYPES
from tracekit.workload.names.rule import Rule

RULES = (
    Rule(
        re.compile(rf"xmma_sparse_gemm_{XMMA_TYPES}_{LAYOUT}_[nt]_{XMMA_TILE}"),
        "gemm",
        dtypes=XMMA,
        tensor_core=True,
        split=SPLIT,
    ),
)
