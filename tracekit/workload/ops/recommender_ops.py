"""Compute the work of kernels of recommenders' ops beside look-ups, each with a part of its own."""

import re

from tracekit.workload.ops import interaction, jagged, pooled_embeddings, sparse_features
from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.signature import Signature

OP = re.compile(r"^(?:fb|fbgemm)::(\w+)$")
KERNELS = sparse_features.KERNELS | jagged.KERNELS | pooled_embeddings.KERNELS


def compute_recommender_work(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    """Compute the work of one kernel; ``None`` if it isn't known, or its op is another one.

    Args:
        signature: The op.
        kernel: The kernel's name.
        item_bytes: Bytes per element where the signature has no type.
    """
    op = OP.search(signature.op)
    formulas = KERNELS.get(op[1], ()) if op else interaction.KERNELS.get(signature.op, ())
    formula = next((one for pattern, one in formulas if re.search(pattern, kernel)), None)
    return formula(signature, item_bytes) if formula else None
