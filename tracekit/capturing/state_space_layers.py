"""Run Mamba's selective scan as mamba-ssm does, in one kernel each way; transformers without it goes token by token."""

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import Library

MAMBA_CAPTURED = "tracekit_mamba"
"""Namespace of the stand-ins."""
FORWARD, BACKWARD = "SelectiveScanFn", "SelectiveScanFnBackward"
"""mamba-ssm's autograd function, as the profiler names it."""
KERNELS = {FORWARD: ("selective_scan_fwd_kernel",), BACKWARD: ("selective_scan_bwd_kernel",)}
SCAN = "mamba_selective_scan"
"""The function of transformers' modules."""
MODELS = "transformers.models."
_TENSORS = "Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z"

_LIBRARY = Library(MAMBA_CAPTURED, "DEF")
_LIBRARY.define(f"{FORWARD}({_TENSORS}) -> Tensor")
_LIBRARY.define(f"{BACKWARD}({_TENSORS}, Tensor grad) -> Tensor[]")
_LIBRARY.impl(FORWARD, lambda u, *rest: torch.empty_like(u), "Meta")
_LIBRARY.impl(BACKWARD, lambda *given: [torch.empty_like(one) for one in given[:-1] if isinstance(one, Tensor)], "Meta")


class _Scan(Function):
    """The scan of a layer."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        ctx.save_for_backward(*given)
        found: Tensor = getattr(torch.ops, MAMBA_CAPTURED).SelectiveScanFn(*given)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        given = ctx.saved_tensors
        found = iter(getattr(torch.ops, MAMBA_CAPTURED).SelectiveScanFnBackward(*given, grad))
        return tuple(None if one is None else next(found) for one in given)


def scan(
    x: Tensor,
    steps: Tensor,
    decays: Tensor,
    *factors: Tensor,
    return_last_state: bool = False,
    **options: Any,
) -> Any:
    """Scan the tokens, with the arguments of transformers' function; what is added and the gate may be named."""
    found = _Scan.apply(x, steps, decays, *factors[:2], *(options.get(name) for name in ("D", "z")))
    if not return_last_state:
        return found
    return found, x.new_empty(*x.shape[:2], decays.shape[-1])


def list_scans() -> Iterator[Any]:
    """List the loaded modules of transformers that have a scan of their own."""
    for name, module in list(sys.modules.items()):
        if name.startswith(MODELS) and SCAN in vars(module):
            yield module
