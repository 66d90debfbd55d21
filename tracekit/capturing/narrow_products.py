"""Train linear layers and experts with products of 8 or 4 bits, as Transformer Engine and torchao do.

Forward, and both gradients' products run in the format; weights, results and gradients stay as they are. Each operand
is cast by one kernel, which writes it row by row and column by column: the product that it enters first wants the one,
the gradient's the other. An input that several layers share (query, key and value) is cast once::

    cast x, cast weight, product                          forward
    cast gradient, product with the weight, with x        backward

A step with one scale for a whole tensor reads that tensor once more before, unless the kernel that made it finds the
largest value (torch.compile). Attention, routers, norms and the output head stay in the model's type.

Sources: Transformer Engine (transformer_engine/common/recipe, pytorch/module/linear.py), torchao
(torchao/float8/float8_linear.py), torchtitan (torchtitan/components/quantization/float8.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from predictors.kernels import DTYPE_BYTES
from tracekit.capturing.options import NARROW_FORMATS
from tracekit.errors import CaptureError
from tracekit.messages import models as messages

LIBRARY = torch.library.Library("tracekit", "FRAGMENT")
LIBRARY.define("quantised_linear(Tensor x, Tensor weight, str precision, ScalarType result) -> Tensor")
LIBRARY.define("quantised_grouped_mm(Tensor x, Tensor weight, Tensor ends, str precision, ScalarType result) -> Tensor")
LIBRARY.define("quantise(Tensor x, float read_bytes, float written_bytes) -> Tensor")
LAYOUTS = 2
"""In which an operand is written: row by row, and column by column."""
GROUPED_NAMES = "grouped_mm", "_grouped_mm"
"""PyTorch's functions for products of experts."""


def _multiply(x: Tensor, weight: Tensor, precision: str, result: torch.dtype) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1], dtype=result)


def _multiply_groups(x: Tensor, weight: Tensor, ends: Tensor, precision: str, result: torch.dtype) -> Tensor:
    if weight.dim() == 3:
        return x.new_empty(x.shape[0], weight.shape[2], dtype=result)
    return x.new_empty(ends.shape[0], x.shape[0], weight.shape[1], dtype=result)


def _quantise(x: Tensor, read_bytes: float, written_bytes: float) -> Tensor:
    return torch.empty_like(x, dtype=torch.float8_e4m3fn)


LIBRARY.impl("quantised_linear", _multiply, "Meta")
LIBRARY.impl("quantised_grouped_mm", _multiply_groups, "Meta")
LIBRARY.impl("quantise", _quantise, "Meta")


@dataclass(frozen=True)
class Casting:
    """How operands of products are cast, and what is already.

    Attributes:
        precision: Format of the products.
        passes: How often a cast reads its input.
        dtype: Type of results; None for that of the input.
    """

    precision: str
    passes: int
    dtype: torch.dtype | None
    known: WeakTensorKeyDictionary

    def cast(self, x: Tensor) -> Tensor:
        """Return a tensor in the format."""
        written = LAYOUTS * DTYPE_BYTES[self.precision]
        return torch.ops.tracekit.quantise(x, float(self.passes * x.element_size()), written)

    def cast_input(self, x: Tensor) -> Tensor:
        """Return an input in the format, which layers share that read the same one."""
        if x not in self.known:
            self.known[x] = self.cast(x.reshape(-1, x.shape[-1]))
        return self.known[x]


class _Linear(torch.autograd.Function):
    """A linear layer's product, and those of its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, casting: Casting) -> Tensor:
        rows, narrow = casting.cast_input(x), casting.cast(weight)
        ctx.save_for_backward(rows, narrow)
        ctx.casting, ctx.types, ctx.has_bias = casting, (x.dtype, weight.dtype), bias is not None
        result = casting.dtype or x.dtype
        out = torch.ops.tracekit.quantised_linear(rows, narrow.t(), casting.precision, result)
        return out.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        rows, narrow = ctx.saved_tensors
        casting, (of_input, of_weight) = ctx.casting, ctx.types
        flat = grad.reshape(-1, grad.shape[-1])
        cast = casting.cast(flat)
        multiply = torch.ops.tracekit.quantised_linear
        needs = ctx.needs_input_grad
        x_grad = multiply(cast, narrow, casting.precision, of_input) if needs[0] else None
        weight_grad = multiply(cast.t(), rows, casting.precision, of_weight) if needs[1] else None
        bias_grad = flat.sum(0) if ctx.has_bias and needs[2] else None
        return None if x_grad is None else x_grad.view(*grad.shape[:-1], -1), weight_grad, bias_grad, None


class _Experts(torch.autograd.Function):
    """Experts' products, and those of their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ends: Tensor, casting: Casting) -> Tensor:
        rows, narrow = casting.cast_input(x), casting.cast(weight)
        ctx.save_for_backward(rows, narrow, ends)
        ctx.casting, ctx.types = casting, (x.dtype, weight.dtype)
        return torch.ops.tracekit.quantised_grouped_mm(rows, narrow, ends, casting.precision, casting.dtype or x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        rows, narrow, ends = ctx.saved_tensors
        casting, (of_input, of_weight) = ctx.casting, ctx.types
        cast = casting.cast(grad)
        multiply, needs = torch.ops.tracekit.quantised_grouped_mm, ctx.needs_input_grad
        x_grad = multiply(cast, narrow.transpose(-2, -1), ends, casting.precision, of_input) if needs[0] else None
        weight_grad = multiply(rows.t(), cast, ends, casting.precision, of_weight) if needs[1] else None
        return x_grad, weight_grad, None, None


@contextmanager
def multiply_narrowly(model: Any, precision: str, dtype: torch.dtype | None, *, compiled: bool) -> Iterator[int]:
    """Run a model's linear layers and experts in a narrow format while the context lasts.

    Args:
        model: The model.
        precision: One of :data:`NARROW_FORMATS`.
        dtype: Type of the products' results; None for that of the input.
        compiled: Whether the kernels that make tensors find their largest value.

    Yields:
        How many linear layers run so.

    Raises:
        CaptureError: There is none.
    """
    form = NARROW_FORMATS[precision]
    chosen = _list_layers(model, form.multiple) if isinstance(model, nn.Module) else []
    if not chosen:
        raise CaptureError(messages.PRECISION_WITHOUT_LAYERS(precision=precision))
    passes = 2 if form.scales_tensor and not compiled else 1
    casting = Casting(form.dtype, passes, dtype, WeakTensorKeyDictionary())

    def multiply(x: Tensor, weight: Tensor, *, offs: Tensor | None = None, **rest: Any) -> Any:
        if x.dim() == 2 and weight.dim() == 3 and offs is not None:
            return _Experts.apply(x, weight, offs, casting)
        return grouped(x, weight, offs=offs, **rest)

    grouped = torch._grouped_mm
    for layer in chosen:
        vars(layer)["forward"] = _bind(layer, casting)
    owners = [(owner, name) for owner in (torch, nn.functional) for name in GROUPED_NAMES if hasattr(owner, name)]
    patches = [patch.object(owner, name, multiply) for owner, name in owners]
    for one in patches:
        one.start()
    try:
        yield len(chosen)
    finally:
        for one in patches:
            one.stop()
        for layer in chosen:
            del vars(layer)["forward"]


def _bind(layer: nn.Linear, casting: Casting) -> Any:
    return lambda x: _Linear.apply(x, layer.weight, layer.bias, casting)


def _list_layers(model: nn.Module, multiple: int) -> list[nn.Linear]:
    """List the linear layers whose widths the format allows, but for the output head."""
    found = [one for one in model.modules() if type(one) is nn.Linear]
    head = find_output_head(model)
    return [
        one for one in found if one is not head and not one.in_features % multiple and not one.out_features % multiple
    ]


def find_output_head(model: nn.Module) -> Any:
    """Return a model's output head: the one that transformers tells, else its last linear layer; None without one."""
    get_head = getattr(model, "get_output_embeddings", None)
    if get_head:
        return get_head()
    return next((one for one in reversed(list(model.modules())) if type(one) is nn.Linear), None)
