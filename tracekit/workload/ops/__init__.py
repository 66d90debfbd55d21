"""Compute work from shapes, op by op.

A formula takes the op's ``Signature`` and returns the columns of its family, or ``None`` if the shapes aren't enough.
To add an op: one entry in its family's file.
"""

import re

from tracekit.workload.ops import (
    attention,
    attention_functions,
    casts,
    conv,
    elementwise,
    embedding,
    fourier,
    gemm,
    indexing,
    norm,
    optimizer,
    pooling,
    quantised_gemm,
    recurrent,
    reduction,
    sampling,
    serving,
    softmax,
    sparse,
    templates,
)
from tracekit.workload.ops.memory_traffic import Columns, Formula, TrafficFormula
from tracekit.workload.signature import Signature

TENSOR_CORE_FAMILIES = ("gemm", "conv", "attention")
FORMULAS: dict[str, Formula] = {
    **gemm.FORMULAS,
    **quantised_gemm.FORMULAS,
    **sparse.FORMULAS,
    **conv.FORMULAS,
    **attention.FORMULAS,
    **attention_functions.FORMULAS,
    **serving.FORMULAS,
}
"""Formulas of ops that are GEMMs, convolutions or attention."""

OP_TRAFFIC: dict[str, TrafficFormula] = {
    **elementwise.TRAFFIC,
    **fourier.TRAFFIC,
    **indexing.TRAFFIC,
    **embedding.TRAFFIC,
    **norm.TRAFFIC,
    **pooling.TRAFFIC,
    **casts.TRAFFIC,
    **recurrent.TRAFFIC,
    **reduction.TRAFFIC,
    **sampling.TRAFFIC,
    **serving.TRAFFIC,
}
"""Formulas of ops with a memory traffic of their own."""

FAMILY_TRAFFIC: dict[str, TrafficFormula] = {
    "elementwise": elementwise.compute_traffic,
    "norm": norm.compute_traffic,
    "softmax": softmax.compute_traffic,
    "reduction": reduction.compute_traffic,
    "copy": indexing.compute_traffic,
    "optimizer": optimizer.compute_traffic,
}
"""Formulas of all other ops, by family."""

TRITON_OP = re.compile(r"^triton_|^[A-Za-z]\w*_\d+$")
"""Kernels that Inductor generated, or that it was given and numbered: they read and write exactly their arguments."""

TEMPLATE_OP = re.compile(r"^triton_(?:tem|mm)_")
NUMBER_SUFFIX = re.compile(r"_\d+$")


def compute_work(signature: Signature, family: str, item_bytes: int = 4) -> Columns | None:
    """Compute the work of one kernel of ``family`` in a call with this signature.

    Args:
        signature: The inputs of the op that launched the kernel.
        family: The kernel's family.
        item_bytes: Bytes per element where the signature has no type.

    Returns:
        The family's columns; ``None`` if the shapes aren't enough.
    """
    if family in TENSOR_CORE_FAMILIES and TEMPLATE_OP.search(signature.op):
        return templates.compute_template_work(signature)
    formula = FORMULAS.get(NUMBER_SUFFIX.sub("", signature.op) if TRITON_OP.search(signature.op) else signature.op)
    if formula is not None and family in TENSOR_CORE_FAMILIES:
        return formula(signature)
    if not (signature.tensors or signature.output) or family in TENSOR_CORE_FAMILIES:
        return None
    own = OP_TRAFFIC.get(signature.op)
    if own is not None:
        return own(signature, item_bytes)
    if not signature.tensors:
        return None
    if family in FAMILY_TRAFFIC and TRITON_OP.search(signature.op):
        return templates.compute_buffer_traffic(signature, item_bytes)
    traffic = FAMILY_TRAFFIC.get(family)
    if traffic is None or not signature.op.startswith("aten::"):
        return None
    return traffic(signature, item_bytes)
