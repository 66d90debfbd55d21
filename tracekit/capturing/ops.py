"""Note the ops of a PyTorch program that would launch kernels on a GPU, from its run on tensors without data."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tracekit.capturing.fbgemm_ops import FBGEMM, FBGEMM_CAPTURED
from tracekit.capturing.following_ops import list_following_ops
from tracekit.capturing.kernel_names import TF32, lies_by_pixel, list_kernel_names
from tracekit.capturing.live_memory import LiveMemory
from tracekit.capturing.op_profile import mark_call, pause_profiling

TYPES = {
    torch.float32: "float",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int",
    torch.bool: "bool",
    torch.uint8: "unsigned char",
    torch.uint64: "unsigned long",
    torch.int32: "int",
    torch.int16: "short int",
    torch.int8: "signed char",
    torch.float64: "double",
    torch.complex64: "c10::complex<float>",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
}

NO_GRAPH_TASK = -1
"""Number of autograd's pass while there is none."""
NO_KERNEL = re.compile(
    r"empty|view|detach|_local_scalar|profiler|lift_fresh|"
    r"^(t|alias|diagonal|expand|permute|transpose|as_strided|select|slice|split|split_with_sizes|squeeze|unbind|unfold|"
    r"unsqueeze)$"
)


@dataclass(frozen=True)
class Operand:
    """A tensor that a call reads or writes.

    Attributes:
        number: Of its memory.
        shape: Its shape.
        strides: Its strides.
        dtype: Its type, as the profiler calls it.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def numel(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Call:
    """An op's call with what the profiler would have noted of its inputs, and the kernels that it launches.

    What it reads and writes, and whether a backward pass makes it, is only known of captured programs.
    """

    op: str
    dims: list[Any]
    types: list[str]
    concrete: list[str]
    kernels: tuple[str, ...]
    strides: list[Any] = field(default_factory=list)
    reads: tuple[Operand, ...] = ()
    writes: tuple[Operand, ...] = ()
    is_backward: bool = False


class Capture(TorchDispatchMode):
    """Mode that notes each op that launches kernels, and the memory of what they make.

    Args:
        tf32: Whether products of fp32 run in TF32.
        held: Tensors that were there before.
    """

    def __init__(self, *, tf32: bool = False, held: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.memory = LiveMemory(held)
        self.calls: list[Call] = []
        self._tf32 = tf32

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and note ``func``."""
        if func.namespace == "profiler":
            return func(*args, **(kwargs or {}))
        with pause_profiling():
            result = _lay_out(func, args, func(*args, **(kwargs or {})))
        self.memory.note(result)
        name = func._schema.name.removeprefix("aten::").removeprefix(FBGEMM_CAPTURED.removesuffix(FBGEMM))
        if not NO_KERNEL.search(name):
            defaults = (argument.default_value for argument in func._schema.arguments[len(args) :])
            op, given = ("copy_", (result, *args)) if name in ("_to_copy", "clone") else (name, (*args, *defaults))
            self._note(op, given, result)
            for follower, inputs in list_following_ops(op, given, result):
                self._note(follower, inputs, result)
        return result

    def _note(self, op: str, given: Sequence[Any], result: Any) -> None:
        call = build_call(op, given, tf32=self._tf32)
        if call.kernels:
            mark_call(len(self.calls))
            reads, writes = self._describe(given), self._describe(result)
            is_backward = torch._C._current_graph_task_id() != NO_GRAPH_TASK
            self.calls.append(replace(call, reads=reads, writes=writes, is_backward=is_backward))

    def _describe(self, tensors: Any) -> tuple[Operand, ...]:
        found = [one for one in tree_leaves(tensors) if isinstance(one, Tensor)]
        return tuple(
            Operand(self.memory.number(one), tuple(one.shape), one.stride(), name_type(one.dtype)) for one in found
        )


def _lay_out(func: Any, args: tuple[Any, ...], result: Any) -> Any:
    """Return a convolution's result with its channels side by side where cuDNN gives it so, which PyTorch forgets."""
    if func is torch.ops.aten.convolution.default and any(map(lies_by_pixel, args[:2])):
        return torch.empty_like(result, memory_format=torch.channels_last)
    return result


def build_call(op: str, given: Sequence[Any], *, tf32: bool = False) -> Call:
    """Build the call of an op.

    Args:
        op: Its name, without ``aten::``; that of another library with its namespace.
        given: Its arguments.
        tf32: Whether products of fp32 run in TF32.
    """
    single = next((arg.dtype for arg in given if isinstance(arg, Tensor)), None) is torch.float32
    names = list_kernel_names(op, given)
    return Call(
        op if "::" in op else f"aten::{op}",
        [_dims(arg) for arg in given],
        [_type(arg) for arg in given],
        [_concrete(arg) for arg in given],
        tuple(TF32 + name if tf32 and single and "gemm" in name else name for name in names),
        [_strides(arg) for arg in given],
    )


def _dims(arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return list(arg.shape)
    # The profiler notes no sizes of lists in which tensors may be missing, such as indices.
    tensors = isinstance(arg, list | tuple) and bool(arg) and all(isinstance(item, Tensor) for item in arg)
    return [_dims(item) for item in arg] if tensors else []


def _strides(arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return list(arg.stride())
    tensors = isinstance(arg, list | tuple) and bool(arg) and all(isinstance(item, Tensor) for item in arg)
    return [_strides(item) for item in arg] if tensors else []


def name_type(dtype: torch.dtype) -> str:
    """Return how the profiler calls a type."""
    return TYPES.get(dtype, str(dtype))


def _type(arg: Any) -> str:
    if isinstance(arg, Tensor):
        return name_type(arg.dtype)
    if isinstance(arg, list | tuple):
        return next((name_type(item.dtype) for item in arg if isinstance(item, Tensor)), "ScalarList")
    return "" if arg is None else "Scalar"


def _concrete(arg: Any) -> str:
    tensors = any(isinstance(item, Tensor) for item in tree_leaves(arg))
    return "" if arg is None or tensors else json.dumps(arg, default=str)
