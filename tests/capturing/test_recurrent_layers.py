"""LSTM, GRU and plain recurrent layers, captured as cuDNN runs them."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import polars as pl  # noqa: E402
from torch import nn  # noqa: E402

import tracekit as tk  # noqa: E402
from predictors.kernels import add_law, complete_columns  # noqa: E402
from predictors.work import add_work  # noqa: E402
from tracekit.capturing.program import capture, tabulate_kernels  # noqa: E402

STEPS, BATCH, WIDE, WIDTH = 6, 4, 64, 32

BOTH = {"bidirectional": True, "batch_first": True, "bias": False}


class Recurrent(nn.Module):
    """Recurrent layers alone."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layers = kind(WIDE, WIDTH, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return their outputs."""
        return self.layers(x)[0]


def capture_layers(kind: type[nn.RNNBase], *, training: bool = False, **options: Any) -> pl.DataFrame:
    """Return the kernels of a step of recurrent layers."""
    with torch.device("meta"):
        shape = (BATCH, STEPS, WIDE) if options.get("batch_first") else (STEPS, BATCH, WIDE)
        program = capture(Recurrent(kind, **options), torch.empty(shape), training=training)
    return tabulate_kernels(program.calls).filter(pl.col("op").str.contains("rnn"))


@pytest.mark.parametrize(
    ("kind", "options", "training", "launches", "products"),
    [
        # The first layer's gates of 64 inputs, the second's of 32; each of 32 of the state.
        (nn.LSTM, {"num_layers": 2}, False, 2 * (1 + 2 * STEPS), 4 * (64 + 32 + 32 + 32)),
        (nn.GRU, {}, False, 1 + 2 * STEPS, 3 * (64 + 32)),
        (
            nn.RNN,
            {"bidirectional": True, "batch_first": True, "bias": False},
            False,
            2 * (1 + 2 * STEPS),
            2 * (64 + 32),
        ),
        # The backward pass has the gradients of inputs and states, and of both weights.
        (nn.LSTM, {}, True, (1 + 2 * STEPS) + (3 + 2 * STEPS), 3 * 4 * (64 + 32)),
    ],
)
def test_kernels_have_the_products_of_all_steps(
    kind: type[nn.RNNBase], options: dict[str, Any], training: bool, launches: int, products: int
) -> None:
    kernels = capture_layers(kind, training=training, **options)
    assert kernels.height == launches
    known = add_work(add_law(complete_columns(kernels.filter(family="gemm"))))
    assert known["work_flops"].sum() == pytest.approx(2 * STEPS * BATCH * WIDTH * products)
    assert kernels.filter(family="elementwise")["bytes"].null_count() == 0


def test_half_precision_of_one_layer_that_suits_it_is_one_kernel() -> None:
    with torch.device("meta"):
        layer = nn.LSTM(256, 256).half()
        (call,) = capture(layer, torch.empty(100, 16, 256, dtype=torch.float16)).calls[-1:]
    assert sum("Persist" in name for name in call.kernels) == 1


def test_packed_sequences_have_as_many_steps_as_the_longest() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 3], device="cpu"))
        return layer(packed)[0].data

    with torch.device("meta"):
        layer = nn.GRU(WIDE, WIDTH)
        calls = capture(run, torch.empty(STEPS, 2, WIDE)).calls
    (found,) = [call for call in calls if call.op == "aten::_cudnn_rnn"]
    assert sum("state" in name for name in found.kernels) == STEPS


def test_their_times_are_wide_and_said_to_be_so() -> None:
    with torch.device("meta"):
        step = tk.capture(Recurrent(nn.LSTM), torch.empty(500, BATCH, WIDE))
    found = tk.predict(step, gpu="h100-sxm")["h100-sxm"]
    kernels = found.kernels.filter(pl.col("method") == "law")
    assert (kernels["high_us"] / kernels["low_us"]).min() > 4
