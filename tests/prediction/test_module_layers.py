"""Layers by the modules that launched the kernels, where no sequence of kernels repeats."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from tracekit.parallelism.layers import find_module_layers


def find(ahead: Sequence[str | None], back: Sequence[str | None]) -> tuple[list[int], list[int]] | None:
    """Return where the layers begin and the last one ends, ahead and back; all kernels take as long."""
    kernels = pl.DataFrame({"module": [*ahead, *back], "dur_ns": 10}, schema_overrides={"module": pl.String})
    found = find_module_layers(kernels, len(ahead))
    return None if found is None else (found[0].tolist(), found[1].tolist())


AHEAD = ["Net.Embedding", "Net.Block_0.Linear", "Net.Block_1.Norm", "Net.Block_1.Linear_0", None, "Net.Block_2", "Net"]
BACK = ["Net", "Net.Block_2", "Net.Block_2.Linear_0", "Net.Block_1", "Net.Block_0.Linear", "Net.Embedding"]


def test_kernels_between_layers_belong_to_the_first() -> None:
    assert find(AHEAD, BACK) == ([1, 2, 5, 6], [1, 3, 4, 5])


def test_passes_may_differ_by_layer() -> None:
    recomputed = [*BACK[:3], "Net.Block_1.Norm", "Net.Block_1.Linear_0", *BACK[3:]]
    assert find(AHEAD, recomputed) == ([1, 2, 5, 6], [1, 3, 6, 7])


@pytest.mark.parametrize(
    ("ahead", "back"),
    [
        ([None] * 3, [None] * 3),
        (["Net.Block_0", "Net.Block_1"], ["Net.Block_1", "Net.Block_0"]),
        (AHEAD, [module for module in BACK if module and "Block_1" not in module]),
        ([f"Net.Sequential_{i}.Conv" for i in range(4)], [f"Net.Sequential_{i}.Conv" for i in (3, 2, 1, 0)]),
        ([*AHEAD, *["Net.Head"] * 20], BACK),
    ],
    ids=["no modules", "encoder and decoder", "a layer without gradients", "stages", "a small part"],
)
def test_modules_that_are_no_layers(ahead: Sequence[str | None], back: Sequence[str | None]) -> None:
    assert find(ahead, back) is None


torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tracekit as tk  # noqa: E402
from tests.capturing.blocks import Block, build  # noqa: E402
from tracekit.parallelism.layers import find_repeated_layers  # noqa: E402
from tracekit.run import prepare_run  # noqa: E402

LAYERS = 4


class Stack(nn.Module):
    """Blocks, of which every second one is recomputed in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        """Return what the blocks make of it."""
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if number % 2 else block(x)
        return x


@pytest.mark.parametrize("compiled", [False, True])
def test_layers_of_a_compiled_and_partly_recomputed_program(compiled: bool) -> None:
    with torch.device("meta"):
        model = Stack().to(torch.bfloat16)
    trace = tk.capture(model, build()[1], training=True, compile=compiled)
    layers = find_repeated_layers(prepare_run(trace).program)
    assert (layers.count, layers.passes_per_step) == (LAYERS, 1)
    assert (np.diff(layers.forward_starts) > 0).all()
    plain, recomputed = np.diff(layers.backward_starts)[0, [1, 2]]  # the last layer but one, and the one before
    assert recomputed > plain
