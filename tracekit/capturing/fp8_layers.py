"""Linear layers whose weights and inputs are e4m3, as models with fp8 weights have them."""

from typing import Any

import torch
from torch import Tensor, nn

from tracekit.capturing.loaded_program import Quantization
from tracekit.errors import CaptureError
from tracekit.messages import models as messages

WIDTH_MULTIPLE = 16
"""Of a layer's widths, without which there is no product in fp8."""


class Fp8Linear(nn.Module):
    """A linear layer that casts its input to fp8 in one kernel and multiplies it with weights of fp8.

    A scale for each block of weights, or each row of the input, changes neither the product's work nor, but for a
    thousandth, its bytes.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = torch.empty(layer.weight.shape, dtype=torch.float8_e4m3fn, device=layer.weight.device)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = layer.bias
        self.scale = torch.ones((), dtype=torch.float32, device=layer.weight.device)

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        rows = x.reshape(-1, x.shape[-1]).to(torch.float8_e4m3fn)
        out = torch._scaled_mm(rows, self.weight.t(), self.scale, self.scale, bias=self.bias, out_dtype=x.dtype)
        return out.view(*x.shape[:-1], out.shape[-1])


def quantize_linear_layers(model: Any, how: Quantization) -> None:
    """Put layers of fp8 in the place of the linear layers of a model of transformers.

    Raises:
        CaptureError: Its experts aren't linear layers, so that nothing would be quantized there.
    """
    head = model.get_output_embeddings()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 2 and "expert" in name:
            raise CaptureError(messages.CONFIG_QUANTIZED_EXPERTS(method=how.method))
    for name, module in list(model.named_modules()):
        if type(module) is not nn.Linear or module is head or how.keeps(name):
            continue
        if module.in_features % WIDTH_MULTIPLE or module.out_features % WIDTH_MULTIPLE:
            continue
        model.set_submodule(name, Fp8Linear(module))
