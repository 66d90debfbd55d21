"""Optimizers with states of 8 bits, and those that multiply matrices."""

from typing import Any

import polars as pl
import pytest

from tests.codes import has_code
from tracekit.errors import CaptureError, RequestError
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.relayout import relayout_kernels
from tracekit.run import prepare_run

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tracekit as tk  # noqa: E402
from predictors import load_gpu  # noqa: E402
from tracekit.capturing.options import CaptureOptions  # noqa: E402
from tracekit.capturing.program import capture, tabulate_kernels  # noqa: E402

NEEDS_MUON = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch 2.9 brings Muon")
WORDS, WIDTH, INNER, TOKENS, LAYERS = 1000, 256, 768, 128, 3
HALF, SINGLE = 2, 4
BLOCK = 256
"""Elements with one scale."""


class Layer(nn.Module):
    """A norm and two linear layers of 256 x 768, the first with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.out(nn.functional.gelu(self.into(self.norm(x))))


class Net(nn.Module):
    """Words, layers and an output head of the same vocabulary, not tied."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build(dtype: Any = torch.bfloat16) -> tuple[nn.Module, Any]:
    with torch.device("meta"):
        return Net().to(dtype), torch.zeros(1, TOKENS, dtype=torch.int64)


MATRICES = LAYERS * 2 * WIDTH * INNER
"""Elements of the weights in the layers."""
TABLES = 2 * WORDS * WIDTH
VECTORS = LAYERS * (2 * WIDTH + INNER)
"""Of norms and biases, each of fewer than 4096 elements."""


def test_states_of_8_bits_have_a_scale_for_each_block():
    facts = capture(*build(), training=True, optimizer="adamw-8bit").facts
    large = MATRICES + TABLES
    # Two states of a byte an element and of a scale in fp32 a block; below 4096 elements two of fp32.
    small = sum(-(-SINGLE * size // 512) * 512 for size in (WIDTH, WIDTH, INNER))
    # Scales of 768 and 1000 blocks take whole blocks of 512 bytes of the allocator.
    scales = LAYERS * 2 * SINGLE * WIDTH * INNER // BLOCK + 2 * 4096
    assert facts.state_bytes == 2 * (large + scales + LAYERS * small)
    assert WORDS * WIDTH // BLOCK * SINGLE == 4000


def test_one_kernel_updates_a_parameter_and_moves_its_states_once():
    calls = capture(*build(), training=True, optimizer="adamw-8bit").calls
    updates = tabulate_kernels([call for call in calls if call.op.startswith("bitsandbytes")])
    assert updates["family"].unique().to_list() == ["optimizer"]
    assert updates["phase"].unique().to_list() == ["optimizer"]
    assert updates.height == 2 + LAYERS * 5
    matrix = updates.filter(pl.col("bytes") == pl.col("bytes").max()).row(0, named=True)
    size = WORDS * WIDTH
    codes = 2 * 256 * SINGLE
    # The gradient is read; the parameter, two states and their scales are read and written.
    assert matrix["bytes"] == size * (HALF + 2 * HALF + 2 * 2) + 2 * 2 * SINGLE * size // BLOCK + codes
    vector = updates.filter(pl.col("op") == "bitsandbytes::optimizer_update_32bit")
    assert vector["bytes"].sum() == VECTORS * (HALF + 2 * HALF + 2 * 2 * SINGLE)


@NEEDS_MUON
def test_newton_schulz_is_fifteen_products_of_a_matrix():
    trace = tk.capture(*build(), training=True, optimizer="muon")
    kernels = tk.predict(trace, gpu="h100-sxm").targets[0].program.kernels
    products = kernels.filter(phase="optimizer", family="gemm")
    assert products.height == LAYERS * 2 * 5 * 3
    assert products["dtype"].unique().to_list() == ["bf16"]
    # X X^T and A X of 256 x 256 x 768 each, A A of 256 cubed, five times, whichever way the weight lies.
    small, large = WIDTH, INNER
    each = 5 * (2 * 2 * small * small * large + 2 * small**3)
    assert products.select(2 * pl.col("m") * pl.col("n") * pl.col("k")).sum().item() == LAYERS * 2 * each
    # AdamW has the two tables, norms and biases, by ops for lists.
    lists = kernels.filter(phase="optimizer", family="optimizer")
    assert lists["op"].str.contains("_foreach").all()
    assert lists["cols"].max() == TABLES + VECTORS


@NEEDS_MUON
def test_muon_keeps_one_state_of_a_matrix_and_two_of_all_else():
    facts = capture(*build(), training=True, optimizer="muon").facts
    assert facts.state_bytes == HALF * (MATRICES + 2 * (TABLES + VECTORS))
    # The update holds what AdamW makes of its parameters, or a matrix's momentum, Gram matrix and products.
    *_, update = facts.peaks[-1]
    assert update >= 3 * HALF * WIDTH * INNER
    fp32 = capture(*build(torch.float32), training=True, optimizer="muon").facts
    assert fp32.state_bytes == SINGLE * (MATRICES + 2 * (TABLES + VECTORS))


@NEEDS_MUON
def test_a_compiled_model_leaves_the_update_as_it_is():
    counts = []
    for compiled in (False, True):
        calls = capture(*build(), training=True, optimizer="muon", compiled=compiled).calls
        first = next(place for place, call in enumerate(calls) if "lerp" in call.op)
        counts.append([call.op for call in calls[first:]])
    assert counts[0] == counts[1]


@NEEDS_MUON
def test_ranks_share_whole_matrices():
    trace = tk.capture(*build(), training=True, optimizer="muon")
    asked = ({"dp": 8}, {"dp": 8, "zero": 1}, {"dp": 8, "fsdp": True}, {"tp": 2})
    alone, *shared = (tk.predict(trace, cluster="8xh100-sxm", **one).targets[0] for one in asked)
    exchanged = [
        dict(one.program.kernels.filter(phase="optimizer").drop_nulls("collective")[["collective", "bytes"]].rows())
        for one in (alone, *shared)
    ]
    everything = HALF * (MATRICES + TABLES + VECTORS)
    # Nothing; parameters behind the update; an eighth of the matrices to their ranks, and back; whole matrices.
    sizes = [{}, {"all_gather": everything}, {"all_to_all": HALF * MATRICES // 8}, {"all_gather": HALF * MATRICES}]
    assert exchanged == sizes
    mine = (pl.col("phase") == "optimizer") & (pl.col("family") == "gemm")
    chosen = [one.program.kernels.select(mine).to_series()[: one.kernels.height] for one in (alone, *shared)]
    products = [one.kernels.filter(rows)["time_us"].sum() for one, rows in zip((alone, *shared), chosen, strict=True)]
    assert products == pytest.approx([products[0], products[0] / 8, products[0] / 8, products[0]])


@pytest.mark.parametrize("layout", [Layout(dp=8, zero=1), Layout(dp=8, sharded=True)])
def test_a_sharded_optimizer_has_an_eighth_of_the_states_of_8_bits(layout):
    program = prepare_run(tk.capture(*build(), training=True, optimizer="adamw-8bit")).program
    gpu = load_gpu("h100-sxm")
    whole, part = (
        relayout_kernels(program, gpu, gpu, Layout(), one).filter(family="optimizer")["bytes"].sum()
        for one in (Layout(), layout)
    )
    assert part == pytest.approx(whole / 8, rel=1e-4)


def test_what_is_refused():
    for name in ("fused-muon", "fused-adamw-8bit", "adamw8bit"):
        with pytest.raises(RequestError, check=has_code("optimizer-unknown")):
            CaptureOptions(train=True, optimizer=name)
    with pytest.raises(RequestError, check=has_code("optimizer-without-training")):
        CaptureOptions(optimizer="muon")


@NEEDS_MUON
def test_a_model_without_matrices_has_nothing_for_muon():
    with torch.device("meta"):
        given = nn.Linear(8, 8), torch.empty(2, 8)
    with pytest.raises(CaptureError, check=has_code("muon-without-matrices")):
        capture(*given, training=True, optimizer="muon")


def test_an_older_pytorch_has_no_muon(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(CaptureError, check=has_code("muon-needs-torch")):
        capture(*build(), training=True, optimizer="muon")
