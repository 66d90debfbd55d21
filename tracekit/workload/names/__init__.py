"""What a kernel's name tells: one file per library, and general rules for family and precision where none knows it."""

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
from tracekit.workload.names.general import copy_kind_of, is_indexed, item_bytes_of
from tracekit.workload.names.rule import KernelName, Rule

__all__ = ["KernelName", "copy_kind_of", "describe", "dtype_of", "family_of", "is_indexed", "item_bytes_of"]

LIBRARIES: tuple[tuple[str, tuple[Rule, ...]], ...] = (
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
def describe(name: str) -> KernelName | None:
    """What a library wrote into a kernel's name; ``None`` if none of them wrote it."""
    for library, rules in LIBRARIES:
        for rule in rules:
            known = rule.read(library, name)
            if known is not None:
                return known
    return None


def family_of(name: str) -> str | None:
    """Family that a kernel's name tells; ``None`` if no rule knows it."""
    known = describe(name)
    return known.family if known else general.family_of(name)


def dtype_of(name: str) -> str | None:
    """Precision that a kernel's name tells; ``None`` if no rule knows it."""
    known = describe(name)
    return known.dtype if known and known.dtype else general.dtype_of(name)
