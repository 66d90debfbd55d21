"""How many elements lie side by side in the operands of a product, which tells whether its loads are aligned."""

import pytest

from predictors import Batch, load_gpu
from tracekit.run import prepare_run
from tracekit.testing import A100, TraceBuilder
from tracekit.workload.ops import OPS
from tracekit.workload.signature import Signature


def find_run(dims: list[list[int]], strides: list[list[int]]) -> object:
    columns = OPS["aten::mm"].compute(Signature("aten::mm", dims, ["float"] * 2, [], strides))
    assert columns is not None
    return columns.get("channels")


@pytest.mark.parametrize(
    ("dims", "strides", "run"),
    [
        ([[64, 1037], [1037, 256]], [[1037, 1], [1, 1037]], None),  # a layer: x and its weight, transposed
        ([[64, 1037], [1037, 256]], [[1, 64], [256, 1]], 256),  # a weight's gradient: m and n lie side by side
        ([[64, 1037], [1037, 258]], [[1, 64], [258, 1]], 64),  # the better aligned of the two
        ([[64, 1037], [1037, 64]], [[1037, 1], [64, 1]], None),  # the depth lies side by side in one
        ([[64, 1037], [1037, 256]], [[2074, 2], [256, 1]], None),  # no elements lie side by side
        ([[64, 1037], [1037, 256]], [], None),
    ],
)
def test_runs_by_hand(dims: list[list[int]], strides: list[list[int]], run: int | None) -> None:
    assert find_run(dims, strides) == run


def test_a_weights_gradient_of_an_odd_number_of_tokens_is_as_fast_as_of_an_even_one() -> None:
    times = []
    for tokens in (1037, 1040):
        dims, strides = [[2048, tokens], [tokens, 8192]], [[1, 2048], [8192, 1]]
        builder = TraceBuilder(A100)
        noted = {"Input Strides": strides}
        builder.op("aten::mm", 0, 50, dims=dims, types=["c10::BFloat16"] * 2, concrete=["", ""], **noted)
        run = prepare_run(builder.kernel("ampere_bf16_s16816gemm", 100, 500, launch=10).load())
        times.append(Batch(run.kernels).on(load_gpu("a100-sxm"))["time_us"].item())
    assert times[0] == pytest.approx(times[1], rel=0.02)
