"""Adapters of low rank beside frozen linear layers."""

from collections import Counter
from typing import Any

import pytest

from tests.codes import has_code
from tracekit.errors import CaptureError, RequestError
from tracekit.parallelism.layout import LayoutError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tracekit as tk  # noqa: E402
from tests.capturing.test_recompute import LAYERS, ROWS, WIDTH, Net  # noqa: E402
from tracekit.capturing.program import capture  # noqa: E402

RANK, SINGLE = 16, 4
ADAPTERS = LAYERS * 2 * RANK * (WIDTH + 4 * WIDTH)
"""Parameters of the adapters: two linear layers of a layer, each with one from its inputs and one to its outputs."""
FROZEN = WIDTH * WIDTH + LAYERS * 2 * 4 * WIDTH * WIDTH


def build() -> tuple[nn.Module, Any]:
    with torch.device("meta"):
        return Net(), torch.empty(ROWS, WIDTH)


def test_frozen_layers_have_no_product_for_their_weights() -> None:
    model, rows = build()
    found = capture(model, rows, training=True, optimizer="fused-adamw", lora=RANK)
    products = Counter(call.is_backward for call in found.calls if call.op == "aten::mm")
    # Forward the stem, and two linear layers a layer with two products of an adapter each.
    assert products[False] == 1 + LAYERS * 2 * 3
    # Backward each adapter's two for weights and two for inputs, the frozen layer's one; none for the first inputs.
    assert products[True] == LAYERS * 2 * 5 - 2
    (update,) = (call for call in found.calls if call.op == "aten::_fused_adamw_")
    assert len(update.dims[0]) == LAYERS * 2 * 2


def test_memory_holds_states_and_gradients_of_the_adapters_alone() -> None:
    model, rows = build()
    facts = capture(model, rows, training=True, optimizer="fused-adamw", lora=RANK).facts
    assert facts.parameters == FROZEN + ADAPTERS
    assert facts.frozen_bytes == FROZEN * SINGLE
    assert facts.state_bytes == 2 * ADAPTERS * SINGLE
    assert max(gradients for gradients, *_ in facts.peaks) == ADAPTERS * SINGLE
    assert model.state_dict().keys() == Net().state_dict().keys()
    assert all(one.requires_grad for one in model.parameters())


def test_replicas_exchange_gradients_of_the_adapters_alone() -> None:
    model, rows = build()
    trace = tk.capture(model, rows, training=True, optimizer="fused-adamw", lora=RANK, recompute="full")
    (found,) = tk.predict(trace, cluster="8xh100-sxm", dp=8).targets
    assert found.program.kernels.filter(collective="all_reduce")["bytes"].sum() == ADAPTERS * SINGLE
    for layout in ({"dp": 8, "fsdp": True}, {"tp": 2}):
        with pytest.raises(LayoutError, check=has_code("adapters-split")):
            tk.predict(trace, cluster="8xh100-sxm", **layout)


def test_what_is_refused() -> None:
    with pytest.raises(CaptureError, check=has_code("lora-without-layers")):
        capture(nn.Linear(4, 4), torch.empty(2, 4), training=True, lora=2)
    with pytest.raises(RequestError, check=has_code("lora-without-training")):
        capture(nn.Linear(4, 4), torch.empty(2, 4), lora=2)
