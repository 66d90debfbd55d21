"""Inputs of one op call, as record_shapes recorded them."""

import json
import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# Element type by C++'s name without spaces.
CPP_DTYPES = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::Float16": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "signedchar": "int8",
    "unsignedchar": "uint8",
    "bool": "bool",
    "short": "int16",
    "shortint": "int16",
    "unsignedshort": "int16",
    "int": "int32",
    "unsignedint": "int32",
    "long": "int64",
    "longint": "int64",
    "unsignedlong": "int64",
    "__int64": "int64",
    "unsigned__int64": "int64",
    "c10::complex<c10::Half>": "complex32",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "c10::Float4_e2m1fn_x2": "nvfp4",
    # A type of scales: one byte, never computed with.
    "c10::Float8_e8m0fnu": "uint8",
}
ITEM_BYTES = {
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "nvfp4": 1,
    "mxfp4": 1,
    "mxfp8": 1,
}
WARP_THREADS = 32
"""Elements that threads side by side take."""
FLOAT_DTYPES = ("fp64", "fp32", "fp16", "bf16", "fp8", "nvfp4")
INTEGER_DTYPES = ("int8", "uint8", "bool", "int16", "int32", "int64")
WHOLE_FLOAT_DOT = re.compile(r"(?<=\d)\.(?!\d)")
"""PyTorch writes 2.0 as ``2.``, which is not valid JSON."""


def parse_cpp_dtype(type_: str) -> str | None:
    """Parse an element type from C++'s name: ``long int``, on Windows ``struct c10::Half``; ``None`` for other types.

    Readers of traces may drop the spaces.
    """
    return CPP_DTYPES.get(type_.replace(" ", "").replace("struct", ""))


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape, element type and strides of one input; ``dtype`` is ``None`` if it wasn't recorded."""

    shape: tuple[int, ...]
    dtype: str | None = None
    strides: tuple[int, ...] = ()

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def stored_elements(self) -> int:
        """Number of elements in memory: an expanded axis (stride 0) stores its elements once."""
        if len(self.strides) != len(self.shape):
            return self.numel
        return math.prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride)

    @property
    def warp_axis(self) -> int | None:
        """The axis along which a warp reads one stretch of memory, or a single element; ``None`` if there is none.

        It has at least a warp's elements, with a stride of 1 (contiguous) or 0 (expanded); the last axis is -1.
        """
        axes = enumerate(zip(self.shape, self.strides, strict=False), start=-len(self.shape))
        long = [(stride, axis) for axis, (size, stride) in axes if size >= WARP_THREADS]
        stride, axis = min(long, default=(WARP_THREADS, 0))
        return axis if stride <= 1 else None

    def get_item_bytes(self, default: int) -> int:
        """Return the bytes per element; ``default`` if the type isn't known."""
        return ITEM_BYTES.get(self.dtype or "", default)

    def compute_bytes(self, default: int) -> int:
        """Compute the bytes in memory; elements of unknown type have ``default`` bytes."""
        return self.stored_elements * self.get_item_bytes(default)


@dataclass(frozen=True)
class Signature:
    """The inputs of one op call.

    Attributes:
        op: Name, such as ``aten::addmm``.
        dims: ``Input Dims``: per input a shape, a list of shapes, or ``[]``.
        types: ``Input type``.
        concrete_inputs: ``Concrete Inputs``: scalars as text, ``""`` for tensors.
        strides: ``Input Strides``, nested like ``dims``.
        output: Shape of the result, if it was inferred from a neighbouring op.
        cast: Precision to which the op casts its operands, if an op within it does.
    """

    op: str
    dims: list[Any]
    types: list[str]
    concrete_inputs: list[str]
    strides: list[Any] = field(default_factory=list)
    output: tuple[int, ...] | None = None
    cast: str | None = None

    @classmethod
    def parse(
        cls,
        op: str,
        dims: str,
        types: str | None,
        concrete: str | None,
        strides: str | None = None,
        output: str | None = None,
    ) -> "Signature":
        """Parse the JSON text of the trace's columns."""
        return cls(
            op,
            json.loads(dims),
            json.loads(types or "[]"),
            json.loads(concrete or "[]"),
            json.loads(strides or "[]"),
            tuple(json.loads(output)) if output else None,
        )

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Every input that has a shape, in order; tensor lists are flattened."""
        return [tensor for index in range(len(self.dims)) for tensor in self.get_tensors(index)]

    @cached_property
    def mixes_layouts(self) -> bool | None:
        """Whether the largest tensors are contiguous along different axes, such as one of them transposed.

        ``None`` if a stride wasn't recorded.
        """
        largest = max((tensor.numel for tensor in self.tensors), default=0)
        whole = [tensor for tensor in self.tensors if tensor.numel == largest]
        if not all(tensor.strides for tensor in whole if tensor.shape):
            return None
        return len({tensor.warp_axis for tensor in whole} - {None}) > 1

    def get_tensors(self, index: int) -> list[Tensor]:
        """Return the tensors of one input: one, several for a tensor list, none for a scalar."""
        if index >= len(self.dims):
            return []
        dims = self.dims[index]
        dtype = parse_cpp_dtype(self.types[index]) if index < len(self.types) else None
        if not isinstance(dims, list):
            return []
        if not dims:
            return [Tensor((), dtype)] if dtype else []
        strides = self.strides[index] if index < len(self.strides) else []
        if isinstance(dims[0], int):
            return [Tensor(tuple(dims), dtype, _parse_strides(strides))]
        known = strides if len(strides) == len(dims) else [[]] * len(dims)
        lists = zip(dims, known, strict=True)
        return [Tensor(tuple(shape), dtype, _parse_strides(steps)) for shape, steps in lists if shape]

    def get_tensor(self, index: int) -> Tensor | None:
        """Return one tensor input, the first of a list; ``None`` if there is none."""
        return next(iter(self.get_tensors(index)), None)

    def get_shape(self, index: int) -> tuple[int, ...] | None:
        """Return the shape of one tensor input; ``None`` if there is none."""
        tensor = self.get_tensor(index)
        return None if tensor is None else tensor.shape

    def get_value(self, index: int) -> Any:
        """Return the value of a scalar or list input; ``None`` if it wasn't recorded, or ``index`` is negative."""
        text = self.concrete_inputs[index] if 0 <= index < len(self.concrete_inputs) else ""
        try:
            return json.loads(WHOLE_FLOAT_DOT.sub(".0", text.replace("True", "true").replace("False", "false")))
        except ValueError:
            return None

    def get_integer(self, index: int) -> int | None:
        """Return the value of an integer input; ``None`` if it wasn't recorded, or is no integer."""
        value = self.get_value(index)
        return value if type(value) is int else None

    def get_integers(self, index: int) -> list[int] | None:
        """Return the integers of a list input; ``None`` if it wasn't recorded, or has other values."""
        values = self.get_value(index)
        return values if isinstance(values, list) and all(type(value) is int for value in values) else None

    @cached_property
    def dtype(self) -> str | None:
        """Element type of the first floating-point tensor."""
        return next((t.dtype for t in self.tensors if t.dtype in FLOAT_DTYPES), None)

    @cached_property
    def gemm_dtype(self) -> str | None:
        """Precision of a GEMM of the inputs: an fp8 weight has the other operand cast, an int8 weight hasn't."""
        matrices = [tensor.dtype for tensor in self.tensors if len(tensor.shape) > 1]
        # Scales of nvfp4 operands are fp8.
        narrow = next((dtype for dtype in ("nvfp4", "fp8") if dtype in matrices), None)
        return narrow or ("int8" if matrices.count("int8") > 1 else self.dtype)


def _parse_strides(strides: Any) -> tuple[int, ...]:
    numbers = isinstance(strides, list) and all(isinstance(stride, int) for stride in strides)
    return tuple(strides) if numbers else ()
