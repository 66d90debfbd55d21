"""Captured programs with their kernels fused, as torch.compile does."""

from dataclasses import replace

import polars as pl
import pytest

import tracekit as tk
from tracekit.capturing.calls import Call, Operand
from tracekit.run import prepare_run

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.capturing.blocks import build  # noqa: E402
from tracekit.capturing.fusion import fuse_calls  # noqa: E402

ROWS, WIDTH = 1024, 512
WHOLE = ROWS * WIDTH * 2


class Layer(nn.Module):
    """A sum and its norm, two products with an activation between them, and a last sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the result."""
        z = x + y
        return z + self.down(functional.gelu(self.up(self.norm(z))))


def tabulate(*, training: bool = False, compiled: bool = True) -> pl.DataFrame:
    """Return the kernels of a layer."""
    with torch.device("meta"):
        model = Layer().bfloat16()
        x, y = (torch.empty(ROWS, WIDTH, dtype=torch.bfloat16) for _ in range(2))
    return prepare_run(tk.capture(model, x, y, training=training, compile=compiled)).kernels


@pytest.mark.heavy
def test_what_lies_between_products_is_one_kernel() -> None:
    found = tabulate()
    names = [name.rstrip("_0123456789") for name in found["name"]]
    assert names == [
        "triton_per_fused_add_native_layer_norm", "gemm", "triton_poi_fused_gelu", "gemm", "triton_poi_fused_add",
    ]  # fmt: skip
    assert tabulate(compiled=False).height == 6


def test_fused_kernels_read_and_write_what_others_made_or_read() -> None:
    """The first reads x, y, weight and bias, and writes z, its norm, and what a backward pass wants of each row."""
    first, _, gelu, _, last = tabulate()["bytes"].to_list()
    assert first == 4 * WHOLE + 2 * 2 * WIDTH + 2 * 4 * ROWS
    assert gelu == 2 * WHOLE
    assert last == 3 * WHOLE


def test_forward_and_backward_pass_are_fused_apart() -> None:
    found = tabulate(training=True)
    assert found.filter(phase="backward", family="gemm").height == 4
    eager = tabulate(training=True, compiled=False)
    assert found.filter(phase="backward").height < eager.filter(phase="backward").height
    assert found["family"].value_counts().filter(family="gemm")["count"].item() == 6


def test_a_backward_call_joins_no_kernel_of_the_forward_pass() -> None:
    """Two calls, of which one reads what the other wrote, are one kernel, unless one is of the backward pass."""
    x, y, z = (Operand(number, (ROWS, WIDTH), (WIDTH, 1), "c10::BFloat16") for number in range(3))
    kernels = ("vectorized_elementwise_kernel",)
    first = Call("aten::gelu", [[ROWS, WIDTH]], ["c10::BFloat16"], [""], kernels, reads=(x,), writes=(y,))
    second = replace(first, reads=(y,), writes=(z,))
    ((_, fused),) = fuse_calls([first, second])
    # It reads x and writes z; nobody else reads y.
    assert fused.dims == [[ROWS, WIDTH], [ROWS, WIDTH], []]
    assert len(fuse_calls([first, replace(second, is_backward=True)])) == 2


@pytest.mark.heavy
def test_fusion_makes_a_step_no_longer() -> None:
    for training in (False, True):
        eager, fused = (
            tk.capture(*build(), training=training, compile=compiled, cuda_graph=True) for compiled in (False, True)
        )
        times = [tk.predict(one, gpu="h100-sxm").targets[0].step.kernel_time_us for one in (eager, fused)]
        assert times[1] < times[0]


def test_optimizers_stay_as_they_are() -> None:
    """AdamW for lists launches eight kernels; it counts its steps on the CPU."""
    found = prepare_run(tk.capture(*build(), training=True, optimizer="adamw", compile=True)).kernels
    assert found.filter(pl.col("op").str.starts_with("aten::_foreach_")).height == 8


def test_every_call_is_in_one_kernel() -> None:
    from tracekit.capturing.fusion import fuse_calls
    from tracekit.capturing.program import capture

    calls = capture(*build(), training=True).calls
    left = fuse_calls(calls)
    places = [place for place, _ in left]
    assert places == sorted(set(places))
    assert len(fuse_calls(calls, range(len(calls)))) == len(calls)
