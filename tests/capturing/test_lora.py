"""Adapters of low rank beside frozen linear layers."""

from collections import Counter
from typing import Any

import polars as pl
import pytest

from tests.codes import has_code
from tracekit.errors import CaptureError, RequestError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tracekit as tk  # noqa: E402
from tests.capturing.test_recompute import LAYERS, ROWS, WIDTH, Net  # noqa: E402
from tracekit.capturing.program import capture  # noqa: E402
from tracekit.parallelism.gemm_sides import Activations, infer_split_sides  # noqa: E402

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


def test_fsdp_gathers_the_frozen_parameters_too_and_scatters_the_adapters_gradients() -> None:
    model, rows = build()
    trace = tk.capture(model, rows, training=True, optimizer="fused-adamw", lora=RANK)
    (found,) = tk.predict(trace, cluster="8xh100-sxm", dp=8, fsdp=True).targets
    moved = dict(
        found.program.kernels.drop_nulls("collective").group_by("collective").agg(pl.col("bytes").sum()).rows()
    )
    layers, stem = (FROZEN - WIDTH * WIDTH + ADAPTERS) * SINGLE, WIDTH * WIDTH * SINGLE
    # Each layer twice, forward and backward, and the stem once.
    assert moved == {"all_gather": 2 * layers + stem, "reduce_scatter": ADAPTERS * SINGLE}
    assert found.memory.max_bytes is not None
    assert found.memory.max_bytes < trace.rank().capture_facts.peak_bytes  # type: ignore[union-attr]


def test_ranks_of_a_layer_sum_the_gradients_of_the_sides_that_they_have_whole() -> None:
    """Of each layer, from its inputs to the first adapter's rank, and from the second's to the outputs."""
    model, rows = build()
    trace = tk.capture(model, rows, training=True, optimizer="fused-adamw", lora=RANK)
    (found,) = tk.predict(trace, cluster="8xh100-sxm", tp=2).targets
    reduced = found.program.kernels.filter(collective="all_reduce")["bytes"]
    assert reduced[-1] == LAYERS * 2 * RANK * WIDTH * SINGLE
    # After each layer, and behind each but the first one's backward pass, whose inputs need no gradient.
    assert reduced.len() == 2 * LAYERS - 1 + 1


@pytest.mark.parametrize(
    ("base", "gemm", "split"),
    [
        ("n", ("LoraDown", 512, 16, 1024), None),
        ("n", ("LoraUp", 512, 4096, 16), "n"),
        ("n", ("LoraUp", 4096, 16, 512), "m"),
        ("k", ("LoraDown", 512, 16, 4096), "k"),
        ("k", ("LoraDown", 16, 4096, 512), "n"),
        ("k", ("LoraUp", 512, 1024, 16), None),
    ],
)
def test_ranks_split_the_side_of_an_adapter_that_its_layer_splits(
    base: str, gemm: tuple[str, int, int, int], split: str | None
) -> None:
    """Of layers from 1024 to 4096 columns and back, of 512 tokens."""
    which, m, n, k = gemm
    wide = (512, 4096, 1024) if base == "n" else (512, 1024, 4096)
    rows = [("MLP.LoraLinear_0.Linear", "forward", *wide), (f"MLP.LoraLinear_0.{which}", "backward", m, n, k)]
    kernels = pl.DataFrame(rows, schema=["module", "phase", "m", "n", "k"], orient="row").with_columns(
        family=pl.lit("gemm"), batch=1, op=pl.lit("aten::mm"), name=pl.lit("gemm"), dur_ns=1
    )
    sides = infer_split_sides(kernels, Activations(frozenset({512}), 1024, is_unsharded=False))
    assert sides["side"].to_list() == [base, split]


def test_what_is_refused() -> None:
    with pytest.raises(CaptureError, check=has_code("lora-without-layers")):
        capture(nn.Linear(4, 4), torch.empty(2, 4), training=True, lora=2)
    with pytest.raises(RequestError, check=has_code("lora-without-training")):
        capture(nn.Linear(4, 4), torch.empty(2, 4), lora=2)
