"""Shapes to work, op by op.

A formula takes the op's :class:`~tracekit.workload.signature.Signature` and gives the columns of its family, or
``None`` if the shapes don't tell. To add an op: one entry in its family's file.
"""

import re

from tracekit.workload.ops import (
    attention,
    attention_functions,
    conv,
    elementwise,
    fbgemm_inference,
    fourier,
    gemm,
    indexing,
    lookups,
    norm,
    optimizer,
    pooling,
    quantise,
    quantised,
    recurrent,
    reduction,
    sampling,
    serving,
    softmax,
    sparse,
    templates,
)
from tracekit.workload.ops.vector import Columns, Formula, Traffic
from tracekit.workload.signature import Signature

PRODUCTS = ("gemm", "conv", "attention")
FORMULAS: dict[str, Formula] = {
    **gemm.FORMULAS,
    **quantised.FORMULAS,
    **sparse.FORMULAS,
    **conv.FORMULAS,
    **attention.FORMULAS,
    **attention_functions.FORMULAS,
    **serving.FORMULAS,
}
"""Of ops that are GEMMs, convolutions or attention."""

OP_TRAFFIC: dict[str, Traffic] = {
    **elementwise.TRAFFIC,
    **fbgemm_inference.TRAFFIC,
    **fourier.TRAFFIC,
    **indexing.TRAFFIC,
    **lookups.TRAFFIC,
    **norm.TRAFFIC,
    **pooling.TRAFFIC,
    **quantise.TRAFFIC,
    **recurrent.TRAFFIC,
    **reduction.TRAFFIC,
    **sampling.TRAFFIC,
    **serving.TRAFFIC,
}
"""Of ops that move memory in a way of their own."""

FAMILY_TRAFFIC: dict[str, Traffic] = {
    "elementwise": elementwise.traffic,
    "norm": norm.traffic,
    "softmax": softmax.traffic,
    "reduction": reduction.traffic,
    "copy": indexing.traffic,
    "optimizer": optimizer.traffic,
}
"""Of all other ops of a family."""

TRITON = re.compile(r"^triton_|^[A-Za-z]\w*_\d+$")
"""Kernels that Inductor generated, or that it was given and numbered: their arguments are all they read and write."""

TEMPLATE = re.compile(r"^triton_(?:tem|mm)_")
NUMBER = re.compile(r"_\d+$")


def work(signature: Signature, family: str, item_bytes: int = 4) -> Columns | None:
    """The work of one kernel of ``family`` in a call with this signature.

    Args:
        signature: The inputs of the op that launched the kernel.
        family: The kernel's family.
        item_bytes: Bytes per element where the signature names no type.

    Returns:
        The family's columns; ``None`` if the shapes don't tell.
    """
    if family in PRODUCTS and TEMPLATE.search(signature.op):
        return templates.work(signature)
    formula = FORMULAS.get(NUMBER.sub("", signature.op) if TRITON.search(signature.op) else signature.op)
    if formula is not None and family in PRODUCTS:
        return formula(signature)
    if not signature.tensors or family in PRODUCTS:
        return None
    own = OP_TRAFFIC.get(signature.op)
    if own is not None:
        return own(signature, item_bytes)
    if family in FAMILY_TRAFFIC and TRITON.search(signature.op):
        return templates.moved(signature, item_bytes)
    traffic = FAMILY_TRAFFIC.get(family)
    if traffic is None or not signature.op.startswith("aten::"):
        return None
    return traffic(signature, item_bytes)
