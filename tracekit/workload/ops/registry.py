"""The ops whose work is known, each registered once with its names, its family and its formula.

    @op("mylib::shuffle", family="copy")                              a function of its own
    op("mylib::mm", family="gemm")(make_gemm_formula(0, 1))           one made by another
    op_kernels("mylib::sort")(("Scan", scan), ("Sort", sort))         an op whose kernels each have work of their own

A formula takes the op's ``Signature`` and returns the columns of its family, or ``None`` if the shapes aren't enough;
one of memory traffic also takes the bytes per element where the signature has no type.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar, cast, get_args, overload

from tracekit.workload.ops.memory_traffic import Columns, Formula, TrafficFormula
from tracekit.workload.signature import Signature

ProductFamily = Literal["gemm", "conv", "attention", "moe"]
TrafficFamily = Literal["elementwise", "softmax", "norm", "copy", "reduction", "embedding", "optimizer"]
PRODUCT_FAMILIES: tuple[str, ...] = get_args(ProductFamily)
"""Families of matrix products; the formulas of all others are of memory traffic."""
AnyFormula = TypeVar("AnyFormula", Formula, TrafficFormula)


@dataclass(frozen=True, slots=True)
class Op:
    """A registered op.

    Attributes:
        unread: Why the formula counts fewer bytes than the op's tensors hold; ``None`` if it counts at least those
            (tests/workload/test_stored_bytes.py).
    """

    family: str
    formula: Formula | TrafficFormula
    unread: str | None = None

    @property
    def is_product(self) -> bool:
        """Whether its kernels multiply matrices."""
        return self.family in PRODUCT_FAMILIES

    def compute(self, signature: Signature, item_bytes: int = 4) -> Columns | None:
        """Compute the work of a call."""
        if self.is_product:
            return cast("Formula", self.formula)(signature)
        return cast("TrafficFormula", self.formula)(signature, item_bytes)


OPS: dict[str, Op] = {}
"""Registered ops by name."""
OTHER_OPS: dict[str, Op] = {}
"""By family, all of PyTorch's ops that aren't registered."""

KernelFormula = tuple[str, TrafficFormula]
"""Pattern of kernels' names, and their formula; its columns tell the kernels' family."""
OP_KERNELS: dict[str, tuple[KernelFormula, ...]] = {}
FBGEMM = ("fb", "fbgemm")
"""Names of FBGEMM's library."""


@overload
def op(*names: str, family: ProductFamily, unread: str | None = None) -> Callable[[Formula], Formula]: ...
@overload
def op(*names: str, family: TrafficFamily, unread: str | None = None) -> Callable[[TrafficFormula], TrafficFormula]: ...
def op(*names: str, family: str, unread: str | None = None) -> Callable[[AnyFormula], AnyFormula]:
    """Register a formula for ops of these names, of a family; ``unread``: see ``Op``.

    Raises:
        ValueError: There is no such family, or one of the ops is registered already.
    """
    if family not in (*PRODUCT_FAMILIES, *get_args(TrafficFamily)):
        raise ValueError(f"{', '.join(names)}: {family!r} is no family of ops with a formula")

    def register(formula: AnyFormula) -> AnyFormula:
        for name in names:
            if name in OPS:
                raise ValueError(f"{name} is registered twice")
            OPS[name] = Op(family, formula, unread)
        return formula

    return register


def other_ops_of(family: TrafficFamily) -> Callable[[TrafficFormula], TrafficFormula]:
    """Register the formula of all of PyTorch's ops of a family that have none of their own."""

    def register(formula: TrafficFormula) -> TrafficFormula:
        OTHER_OPS[family] = Op(family, formula)
        return formula

    return register


def op_kernels(*names: str, libraries: Iterable[str] = ()) -> Callable[..., None]:
    """Register formulas for kernels of ops of these names, in each of the libraries if the names lack them."""

    def register(*formulas: KernelFormula) -> None:
        for name in [f"{library}::{name}" for library in libraries for name in names] or names:
            if name in OP_KERNELS:
                raise ValueError(f"{name} is registered twice")
            OP_KERNELS[name] = formulas

    return register


def compute_kernel_work(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    """Compute the work of one kernel of an op of ``op_kernels``; ``None`` for other kernels."""
    formulas = OP_KERNELS.get(signature.op, ())
    formula = next((one for pattern, one in formulas if re.search(pattern, kernel)), None)
    return formula(signature, item_bytes) if formula else None
