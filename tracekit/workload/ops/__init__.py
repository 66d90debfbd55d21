"""Shapes to work, op by op.

A formula takes the op's :class:`~tracekit.workload.signature.Signature` and gives the columns of its family, or
``None`` if the shapes don't tell. To add an op: one entry in its family's file.
"""

from collections.abc import Callable

from tracekit.workload.ops import attention, conv, gemm, vector
from tracekit.workload.signature import Signature

Columns = dict[str, int | float | bool | str | None]
Formula = Callable[[Signature], Columns | None]

# An op of torch itself, or a kernel that inductor generated, does what its inputs say and no more.
KNOWN_OPS = ("aten::", "triton_")

FORMULAS: dict[str, Formula] = {**gemm.FORMULAS, **conv.FORMULAS, **attention.FORMULAS}


def work(signature: Signature, family: str, item_bytes: int) -> Columns | None:
    """The work of one kernel of ``family`` in a call with this signature.

    Args:
        signature: The inputs of the op that launched the kernel.
        family: The kernel's family.
        item_bytes: Bytes per element where the signature names no type.

    Returns:
        The family's columns; ``None`` if the shapes don't tell.
    """
    formula = FORMULAS.get(signature.op)
    if formula is not None and family in ("gemm", "conv", "attention"):
        return formula(signature)
    traffic = vector.TRAFFIC.get(family)
    if traffic is None or not signature.tensors or not signature.op.startswith(KNOWN_OPS):
        return None
    return traffic(signature, item_bytes)
