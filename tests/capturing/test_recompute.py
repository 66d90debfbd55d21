"""Layers that run again in the backward pass instead of keeping what they make."""

from collections import Counter
from typing import Any

import pytest

from tests.codes import has_code
from tracekit.errors import CaptureError, RequestError

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import tracekit as tk  # noqa: E402
from tests.capturing.blocks import Block  # noqa: E402
from tracekit.capturing.layer_memory import find_layers, list_layers  # noqa: E402
from tracekit.capturing.program import CapturedProgram, capture  # noqa: E402

LAYERS, WIDTH, ROWS = 4, 512, 4096
HIDDEN_BYTES = 4 * ROWS * WIDTH * 4
"""Of what a layer keeps besides its input."""


class Layer(nn.Module):
    """An MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in ((WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)))

    def forward(self, x: Tensor) -> Tensor:
        """Return what it makes of rows."""
        found: Tensor = self.down(torch.relu(self.up(x)))
        return found


class Net(nn.Module):
    """A layer of another kind, then those that repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layers make of rows."""
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return x


def train(recompute: str | None, model: Any = Net, **options: Any) -> CapturedProgram:
    with torch.device("meta"):
        return capture(model(), torch.empty(ROWS, WIDTH), training=True, recompute=recompute, **options)


def count_ops(program: CapturedProgram) -> Counter[str]:
    return Counter(call.op for call in program.calls)


@pytest.mark.parametrize(
    # Forward 2 products a layer, backward 4; full runs both again, selective every second. The stem has 1 and 1.
    ("recompute", "products"),
    [(None, 6), ("none", 6), ("selective", 7), ("full", 8)],
)
def test_products_that_run_again(recompute: str | None, products: int) -> None:
    ops = count_ops(train(recompute))
    assert ops["aten::mm"] == products * LAYERS + 2
    assert ops["aten::relu"] == LAYERS * (2 if recompute in ("selective", "full") else 1)


def test_attention_runs_again_only_where_all_does() -> None:
    with torch.device("meta"):
        model, rows = nn.Sequential(Block(), Block()).bfloat16(), torch.empty(2, 8, 256, dtype=torch.bfloat16)
    found = [count_ops(capture(model, rows, training=True, recompute=how)) for how in (None, "selective", "full")]
    assert [ops["aten::_scaled_dot_product_flash_attention"] for ops in found] == [2, 2, 4]
    # Of three products a layer the second runs again.
    assert [ops["aten::addmm"] for ops in found] == [6, 8, 12]
    assert "forward" not in vars(model[0])


def test_every_second_product_of_8_bits_runs_again() -> None:
    """Of each layer's two the second; that of the last layer is the output head's, which stays in 32 bits."""
    with torch.device("meta"):
        model, rows = Net(), torch.empty(ROWS, WIDTH)
    none, selective, full = (
        count_ops(capture(model, rows, training=True, precision="fp8", recompute=how))["tracekit::quantised_linear"]
        for how in ("none", "selective", "full")
    )
    assert (selective - none, full - none) == (LAYERS - 1, 2 * LAYERS - 1)


def test_memory_keeps_the_inputs_of_layers() -> None:
    # In the last layer's backward pass, where most is held, all others have kept their hidden activations, or not.
    assert train(None).facts.peak_bytes - train("full").facts.peak_bytes == (LAYERS - 1) * HIDDEN_BYTES


@pytest.mark.parametrize("compiled", [False, True])
def test_layers_that_run_again_keep_their_layout(compiled: bool) -> None:
    with torch.device("meta"):
        model, rows = Net(), torch.empty(ROWS, WIDTH)
    trace = tk.capture(model, rows, training=True, recompute="full", compile=compiled, micro_batches=2)
    for layout, collectives in (({"dp": 8, "fsdp": True}, 2 * 3 * LAYERS + 2 * 2), ({"pp": 2, "micro_batches": 4}, 0)):
        (found,) = tk.predict(trace, cluster="8xh100-sxm", **layout).targets
        assert found.program.kernels.filter(family="collective").height == collectives


def test_layers_are_the_outermost_of_one_class_in_a_list() -> None:
    nested = nn.ModuleList([nn.Sequential(Layer(), Layer()), nn.Sequential(Layer(), Layer())])
    assert list_layers(nn.ModuleDict({"layers": nested})) == list(nested)
    assert list_layers(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == []


def test_what_is_refused() -> None:
    with pytest.raises(CaptureError, check=has_code("recompute-without-layers")):
        train("full", lambda: nn.Linear(WIDTH, WIDTH))
    with pytest.raises(RequestError, check=has_code("recompute-unknown")):
        train("some")
    with pytest.raises(RequestError, check=has_code("recompute-without-training")):
        capture(nn.Linear(2, 2), torch.empty(2, 2), recompute="full")


def test_the_list_of_layers_is_the_largest_that_holds_them() -> None:
    small, large = nn.Sequential(Layer(), Layer()), nn.Sequential(Layer(), Layer(), Layer())
    others = nn.ModuleList([nn.Linear(WIDTH, 9 * WIDTH), nn.Linear(WIDTH, 9 * WIDTH)])
    assert find_layers(nn.ModuleList([small, large, others])) is large
    assert find_layers(others) is None
