"""Train adapters of low rank beside the frozen linear layers of a model (LoRA), as peft's ``all-linear`` does.

A linear layer of the repeated layers gets two small ones beside it; all else is frozen, the output head, too::

    y = W x + B (A x) * scale        A: rank x inputs, B: outputs x rank, in the type of W

So the backward pass has no product for the gradient of W, and none of W's gradients is kept, exchanged or applied.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from tracekit.capturing.layer_memory import list_layers
from tracekit.errors import CaptureError
from tracekit.messages import models as messages

SCALE = 2.0
"""Of an adapter's result: peft's alpha over its rank, which changes no kernel."""


class LoraDown(nn.Linear):
    """The first layer of an adapter, to its rank."""


class LoraUp(nn.Linear):
    """The second layer of an adapter, from its rank."""


class LoraLinear(nn.Module):
    """A frozen linear layer with an adapter; tensor parallelism knows all three by the names of their classes."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        given: dict[str, Any] = {"bias": False, "dtype": base.weight.dtype, "device": base.weight.device}
        self.base = base
        self.down, self.up = LoraDown(base.in_features, rank, **given), LoraUp(rank, base.out_features, **given)

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        found: Tensor = self.base(x) + self.up(self.down(x)) * SCALE
        return found


@contextmanager
def add_adapters(model: Any, rank: int) -> Iterator[None]:
    """Freeze a model and put adapters beside the linear layers of its repeated layers, inside.

    Raises:
        CaptureError: It has no repeated layers with linear layers in them.
    """
    inside = {id(one) for layer in list_layers(model) for one in layer.modules()}
    named = model.named_modules() if isinstance(model, nn.Module) else ()
    bases = {name: one for name, one in named if type(one) is nn.Linear and id(one) in inside}
    if not bases:
        raise CaptureError(messages.LORA_WITHOUT_LAYERS())
    trained = [one for one in model.parameters() if one.requires_grad]
    for one in trained:
        one.requires_grad_(False)
    for name, base in bases.items():
        model.set_submodule(name, LoraLinear(base, rank))
    try:
        yield
    finally:
        for name, base in bases.items():
            model.set_submodule(name, base)
        for one in trained:
            one.requires_grad_(True)
