"""FLOPs of captured ops against torch's own counter, op by op.

What differs is computed here: of causal attention torch counts the whole square of queries and keys, and of attention
that it runs as products it counts a backward pass that keeps the scores; a fused one computes them once more.
"""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import tracekit as tk
from predictors.kernels import add_law, complete_columns
from predictors.work import add_work
from tracekit.run import prepare_run

torch = pytest.importorskip("torch")
oracle = pytest.importorskip("torch.utils.flop_counter")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

pytestmark = pytest.mark.heavy

B, H, S, D, W = 2, 4, 32, 16, 64


class Calls(nn.Module):
    """A function as a module with a weight, so that it can be trained."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function, self.scale = function, nn.Parameter(torch.ones(()))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*(one * self.scale for one in inputs))


def attend(**options: Any) -> Callable[..., Tensor]:
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **options)


QKV = ((B, H, S, D),) * 3
PROGRAMS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((S, W), (W, D))),
    "addmm": (nn.Linear(W, D), ((S, W),)),
    "bmm": (torch.bmm, ((B, S, W), (B, W, D))),
    "baddbmm": (torch.baddbmm, ((B, S, D), (B, S, W), (B, W, D))),
    "einsum": (lambda a, b: torch.einsum("bsw,wd->bsd", a, b), ((B, S, W), (W, D))),
    "matmul of four dimensions": (torch.matmul, ((B, H, S, D), (B, H, D, S))),
    "conv1d": (nn.Conv1d(8, 16, 3, stride=2), ((B, 8, S),)),
    "conv2d": (nn.Conv2d(8, 16, 3, padding=2, dilation=2), ((B, 8, S, S),)),
    "conv3d": (nn.Conv3d(4, 8, 3), ((B, 4, 8, 8, 8),)),
    "transposed": (nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1), ((B, 8, 9, 9),)),
    "embedding and head": (
        nn.Sequential(nn.Linear(W, W), nn.GELU(), nn.LayerNorm(W), nn.Linear(W, 10, bias=False)),
        ((B, S, W),),
    ),
    "attention of a module": (nn.MultiheadAttention(W, H, batch_first=True), ((B, S, W),) * 3),
    "encoder": (nn.TransformerEncoderLayer(W, H, 2 * W, batch_first=True, dropout=0.0), ((B, S, W),)),
}
SCORES_AGAIN = {("encoder", True): 2 * B * H * S * S * (W // H)}
"""What a fused backward pass adds to torch's count, by program and whether it is trained."""
ATTENTION: dict[str, tuple[Any, tuple[tuple[int, ...], ...], float]] = {
    "plain": (attend(), QKV, 1.0),
    "other lengths": (attend(), ((B, H, S, D), (B, H, 2 * S, D), (B, H, 2 * S, D)), 1.0),
    "causal": (attend(is_causal=True), QKV, (S + 1) / (2 * S)),
    "grouped": (attend(enable_gqa=True), ((B, H, S, D), (B, 2, S, D), (B, 2, S, D)), 1.0),
}
"""Programs of one attention, shapes of their inputs, the part of torch's products that is computed."""
REGISTERED = (
    "mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "_scaled_mm", "scaled_dot_product",
    "efficient_attention", "flash_attention", "flex_attention",
)  # fmt: skip
ALIASES = ("_convolution", "_slow_conv2d_forward", "convolution_overrideable", "cudnn_convolution")
"""Ops of torch's counter that a capture sees as ``convolution``."""


def count_captured(module: Any, shapes: tuple[tuple[int, ...], ...], *, training: bool) -> dict[str, float]:
    """Return tracekit's operations of a captured program's products, by family."""
    kernels = prepare_run(tk.capture(*prepare(module, shapes), training=training)).kernels
    products = kernels.filter(pl.col("family").is_in(["gemm", "conv", "attention"]))
    work = add_work(add_law(complete_columns(products)))
    assert work["work_flops"].null_count() == 0
    return dict(work.group_by("family").agg(pl.col("work_flops").sum()).rows())


def prepare(module: Any, shapes: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
    inputs = [torch.empty(shape, device="meta", requires_grad=True) for shape in shapes]
    model = module if isinstance(module, nn.Module) else Calls(module)
    return model.to("meta"), *inputs


def count_torch(module: Any, shapes: tuple[tuple[int, ...], ...], *, training: bool) -> float:
    """Return torch's operations of the same program."""
    model, *inputs = prepare(module, shapes)
    with oracle.FlopCounterMode(display=False) as counter:
        out = model(*inputs)
        if training:
            (out[0] if isinstance(out, tuple) else out).sum().backward()
    return float(counter.get_total_flops())


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_products(name: str, training: bool) -> None:
    module, shapes = PROGRAMS[name]
    expected = count_torch(module, shapes, training=training) + SCORES_AGAIN.get((name, training), 0)
    assert sum(count_captured(module, shapes, training=training).values()) == expected


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    module, shapes, part = ATTENTION[name]
    q, k, v = ((shapes[0][0], shapes[0][1], *shape[2:]) for shape in shapes)  # each query head has its keys
    forward = part * oracle.sdpa_flop_count(q, k, v)
    backward = part * oracle.sdpa_backward_flop_count((*q[:3], v[3]), q, k, v)
    assert count_captured(module, shapes, training=False) == {"attention": forward}
    assert count_captured(module, shapes, training=True) == {"attention": forward + backward}


def test_values_of_another_width_count_by_the_mean() -> None:
    """Their backward pass as 2.5 times the forward pass, for want of a column: torch counts 7/3 at twice the width."""
    shapes = ((B, H, S, D), (B, H, S, D), (B, H, S, 2 * D))
    forward = oracle.sdpa_flop_count(*shapes)
    assert count_captured(attend(), shapes, training=False) == {"attention": forward}
    assert count_captured(attend(), shapes, training=True) == {"attention": 3.5 * forward}
    assert oracle.sdpa_backward_flop_count(shapes[2], *shapes) == 7 / 3 * forward


def test_every_op_that_torch_counts_is_counted_here() -> None:
    """An op that a later PyTorch counts, too, needs a program above."""
    names = {str(op).removeprefix("aten.") for op in oracle.flop_registry}
    unknown = {name for name in names - {*ALIASES} if not any(known in name for known in REGISTERED)}
    assert unknown == set()
