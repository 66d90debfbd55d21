"""Compute work from shapes, op by op.

To add an op: ``@op`` in its family's file (:mod:`tracekit.workload.ops.registry`). That also tells the family of its
kernels, where their names don't.
"""

import re

from tracekit.workload.ops import (
    attention,
    conv,
    elementwise,
    embedding,
    gemm,
    indexing,
    jagged,
    norm,
    optimizer,
    recurrent,
    reduction,
    sparse_features,
    templates,
)
from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.ops.registry import OPS, OTHER_OPS, PRODUCT_FAMILIES, Op
from tracekit.workload.signature import Signature

REGISTERING = (
    attention, conv, elementwise, embedding, gemm, indexing, jagged, norm, optimizer, recurrent, reduction,
    sparse_features,
)  # fmt: skip
"""Modules that register ops when they are imported."""

TRITON_OP = re.compile(r"^triton_|^[A-Za-z]\w*_\d+$")
"""Kernels that Inductor generated, or that it was given and numbered: they read and write exactly their arguments."""

TEMPLATE_OP = re.compile(r"^triton_(?:tem|mm)_")
NUMBER_SUFFIX = re.compile(r"_\d+$")
TEMPLATE = Op("gemm", templates.compute_template_work)
BUFFERS = Op(
    "elementwise", templates.compute_buffer_traffic, unread="a slice, or rows of a table, are read of a buffer"
)


def compute_work(signature: Signature, family: str, item_bytes: int = 4) -> Columns | None:
    """Compute the work of one kernel of ``family`` in a call; ``None`` if the shapes aren't enough."""
    known = find_op(signature.op, family)
    if known is None:
        return None
    has_inputs = signature.tensors or (signature.output and known is OPS.get(signature.op))
    return known.compute(signature, item_bytes) if known.is_product or has_inputs else None


def find_op(name: str, family: str) -> Op | None:
    """Find the formula of an op's kernels of a family: its own, or that of generated kernels or of the family."""
    known = OPS.get(name)
    if family in PRODUCT_FAMILIES:
        if TEMPLATE_OP.search(name):
            return TEMPLATE
        known = OPS.get(NUMBER_SUFFIX.sub("", name)) if TRITON_OP.search(name) else known
        return known if known is not None and known.is_product else None
    if known is not None and not known.is_product:
        return known
    if family in OTHER_OPS and TRITON_OP.search(name):
        return BUFFERS
    return OTHER_OPS.get(family) if name.startswith("aten::") else None
