"""Compute work from shapes, op by op.

A formula takes the op's ``Signature`` and returns the columns of its family, or ``None`` if the shapes aren't enough.
To add an op: one entry in its family's file. That also tells the family of its kernels, where their names don't.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

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
from tracekit.workload.ops.memory_traffic import Columns, Formula, TrafficFormula, find_unread_reason
from tracekit.workload.signature import Signature

TENSOR_CORE_FAMILIES = ("gemm", "conv", "attention")
AnyFormula = TypeVar("AnyFormula")
Tables = tuple[tuple[str, Mapping[str, AnyFormula]], ...]
"""Families and formulas by op."""

_FORMULA_TABLES: Tables[Formula] = (
    ("gemm", gemm.FORMULAS),
    ("gemm", quantised_gemm.FORMULAS),
    ("gemm", sparse.FORMULAS),
    ("gemm", serving.FORMULAS),
    ("conv", conv.FORMULAS),
    ("attention", attention.FORMULAS),
    ("attention", attention_functions.FORMULAS),
)
_TRAFFIC_TABLES: Tables[TrafficFormula] = (
    ("elementwise", elementwise.TRAFFIC),
    ("elementwise", fourier.TRAFFIC),
    ("elementwise", casts.TRAFFIC),
    ("elementwise", recurrent.TRAFFIC),
    ("elementwise", sampling.TRAFFIC),
    ("elementwise", serving.TRAFFIC),
    ("copy", indexing.TRAFFIC),
    ("embedding", embedding.TRAFFIC),
    ("norm", norm.TRAFFIC),
    ("reduction", pooling.TRAFFIC),
    ("reduction", reduction.TRAFFIC),
)


def _join_tables(tables: Tables[AnyFormula]) -> dict[str, AnyFormula]:
    """Join tables into one; an op in two of them is an error."""
    joined = {op: formula for _, table in tables for op, formula in table.items()}
    if len(joined) < sum(len(table) for _, table in tables):
        raise ValueError("an op has two formulas")
    return joined


FORMULAS = _join_tables(_FORMULA_TABLES)
"""Formulas of ops that are GEMMs, convolutions or attention."""

OP_TRAFFIC = _join_tables(_TRAFFIC_TABLES)
"""Formulas of ops with a memory traffic of their own."""

FORMULA_FAMILIES = {op: family for family, table in _FORMULA_TABLES for op in table}
"""Family of each op in ``FORMULAS``."""

TRAFFIC_FAMILIES = {op: family for family, table in _TRAFFIC_TABLES for op in table}
"""Family of kernels of an op in ``OP_TRAFFIC`` whose names tell none, or one that has no such traffic."""

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
    if family in TENSOR_CORE_FAMILIES:
        formula = _find_formula(signature.op)
        return None if formula is None else formula(signature)
    traffic = _find_traffic(signature.op, family)
    has_inputs = signature.tensors or (signature.output and signature.op in OP_TRAFFIC)
    return traffic(signature, item_bytes) if traffic is not None and has_inputs else None


def explain_unread(op: str, family: str) -> str | None:
    """Return why the work of an op's kernels is less than its tensors hold, if its formula says so."""
    return find_unread_reason(_find_formula(op) if family in TENSOR_CORE_FAMILIES else _find_traffic(op, family))


def _find_formula(op: str) -> Formula | None:
    if TEMPLATE_OP.search(op):
        return templates.compute_template_work
    return FORMULAS.get(NUMBER_SUFFIX.sub("", op) if TRITON_OP.search(op) else op)


def _find_traffic(op: str, family: str) -> TrafficFormula | None:
    if op in OP_TRAFFIC:
        return OP_TRAFFIC[op]
    if family in FAMILY_TRAFFIC and TRITON_OP.search(op):
        return templates.compute_buffer_traffic
    return FAMILY_TRAFFIC.get(family) if op.startswith("aten::") else None
