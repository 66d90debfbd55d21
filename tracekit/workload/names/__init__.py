"""Parse kernel names: one file per library, and general rules for family and precision of all other names."""

from functools import lru_cache

from tracekit.bounds import MAX_REMEMBERED_NAMES
from tracekit.workload.names import amd, attention, collective, general, nvidia, triton
from tracekit.workload.names.general import infer_copy_kind, infer_item_bytes, is_indexed, match_weight_dtype
from tracekit.workload.names.library import infer_library
from tracekit.workload.names.rule import KernelName, NameRule

__all__ = [
    "KernelName",
    "infer_copy_kind",
    "infer_dtype",
    "infer_family",
    "infer_item_bytes",
    "infer_library",
    "infer_weight_dtype",
    "is_indexed",
    "parse_kernel_name",
]

RULES: tuple[NameRule, ...] = (
    *collective.RULES,
    *triton.RULES,
    *attention.RULES,
    *nvidia.RULES,
    *amd.RULES,
)
"""The first that matches counts."""
PRODUCT_FAMILIES = ("gemm", "moe")


@lru_cache(MAX_REMEMBERED_NAMES)
def parse_kernel_name(name: str) -> KernelName | None:
    """Parse a kernel's name by the rules of its library; ``None`` if no library's rule matches."""
    return next((known for rule in RULES if (known := rule.parse(name)) is not None), None)


@lru_cache(MAX_REMEMBERED_NAMES)
def infer_family(name: str) -> str | None:
    """Infer the family from a kernel's name; ``None`` if no rule matches."""
    known = parse_kernel_name(name)
    return known.family if known else general.match_family(name)


@lru_cache(MAX_REMEMBERED_NAMES)
def infer_dtype(name: str) -> str | None:
    """Infer the precision from a kernel's name; ``None`` if no rule matches."""
    known = parse_kernel_name(name)
    if known is not None and (known.dtype is not None or known.family == "collective"):
        return known.dtype  # the arguments of a collective aren't its message
    return general.match_dtype(name)


@lru_cache(MAX_REMEMBERED_NAMES)
def infer_weight_dtype(name: str) -> str | None:
    """Infer the precision of the weights of a GEMM that computes with another; ``None`` if the name doesn't show it."""
    known = parse_kernel_name(name)
    if known is not None and known.weight_dtype is not None:
        return known.weight_dtype
    stored = match_weight_dtype(name) if infer_family(name) in PRODUCT_FAMILIES else None
    return None if stored == infer_dtype(name) else stored
