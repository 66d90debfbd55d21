"""A model, an optimizer and a loss to a step."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

Step = Callable[[], None]


def train(
    parameters: Iterable[nn.Parameter],
    loss: Callable[[], Tensor],
    precision: AbstractContextManager[object],
    *,
    reads_loss: bool = False,
) -> Step:
    """Return a step of AdamW on ``loss``; the forward pass runs in ``precision``, the loss may be read back."""
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision:
            value = loss()
        if reads_loss:
            value.item()
        value.backward()
        optimizer.step()

    return step


def infer(forward: Callable[[], Tensor]) -> Step:
    """Return a step that computes ``forward`` without gradients and reads one number back."""

    @torch.inference_mode()
    def step() -> None:
        forward().flatten()[0].item()

    return step


def graphed(step: Step, device: str) -> Step:
    """Return the step as one CUDA graph; on a CPU the step itself."""
    if device == "cpu":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def half(device: str) -> AbstractContextManager[object]:
    """Return the context of mixed precision in bf16."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)
