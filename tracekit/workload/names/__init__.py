"""Parse kernel names: one file per library, and general rules for family and precision of all other names."""

from functools import cache

from tracekit.workload.names import (
    attention,
    collective,
    cublas,
    cudnn,
    cusparselt,
    cutlass,
    deepgemm,
    general,
    rocm,
    triton,
    trtllm,
)
from tracekit.workload.names.general import infer_copy_kind, infer_item_bytes, is_indexed
from tracekit.workload.names.rule import KernelName, NameRule

__all__ = [
    "KernelName",
    "infer_copy_kind",
    "infer_dtype",
    "infer_family",
    "infer_item_bytes",
    "is_indexed",
    "parse_kernel_name",
]

LIBRARIES: tuple[tuple[str, tuple[NameRule, ...]], ...] = (
    ("collective", collective.RULES),
    ("triton", triton.RULES),
    ("trtllm", trtllm.RULES),
    ("attention", attention.RULES),
    ("deepgemm", deepgemm.RULES),
    ("cudnn", cudnn.RULES),
    ("cusparselt", cusparselt.RULES),
    ("cutlass", cutlass.RULES),
    ("cublas", cublas.RULES),
    ("rocm", rocm.RULES),
)


@cache
def parse_kernel_name(name: str) -> KernelName | None:
    """Parse a kernel's name by the rules of its library; ``None`` if no library's rule matches."""
    for library, rules in LIBRARIES:
        for rule in rules:
            known = rule.parse(library, name)
            if known is not None:
                return known
    return None


def infer_family(name: str) -> str | None:
    """Infer the family from a kernel's name; ``None`` if no rule matches."""
    known = parse_kernel_name(name)
    return known.family if known else general.match_family(name)


def infer_dtype(name: str) -> str | None:
    """Infer the precision from a kernel's name; ``None`` if no rule matches."""
    known = parse_kernel_name(name)
    return known.dtype if known and known.dtype else general.match_dtype(name)
