"""Recurrent layers: each kernel gets the products that it runs, and all together those of the op."""

import polars as pl
import pytest

from predictors.kernels import add_law, complete_columns
from predictors.work import add_work
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

STEPS, BATCH, WIDE, WIDTH = 5, 3, 16, 8
GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>(T1::Params)"
STEP = "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(T1::Params)"
PERSISTENT = "void RNN_blockPersist_fp_LSTM<float, float, float, 1, 128>(const float*)"
POINTWISE = "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int)"
CELLS = 4
"""Two layers, both ways."""


def cudnn(names: list[str], *, backward: bool = False, gates: int = 4, mask: str = "[True, True, True, True]"):
    """An LSTM of two layers that goes both ways; its weights as ``nn.LSTM`` holds them."""
    weights = [
        shape
        for cell in range(CELLS)
        for shape in (
            [gates * WIDTH, WIDE if cell < 2 else 2 * WIDTH],
            [gates * WIDTH, WIDTH],
            [gates * WIDTH],
            [gates * WIDTH],
        )
    ]
    x, state, y = [STEPS, BATCH, WIDE], [CELLS, BATCH, WIDTH], [STEPS, BATCH, 2 * WIDTH]
    cells = state if gates == 4 else []  # a GRU has none
    dims = [x, weights, [], [], state, cells, *([y, y, [], []] if backward else []), *[[]] * 10]
    concrete = [""] * len(dims)
    concrete[17 if backward else 13] = "True"
    if backward:
        dims, concrete = [*dims, []], [*concrete, mask]
    types = ["TensorList" if i == 1 else "float" if dim else "" for i, dim in enumerate(dims)]
    op = "aten::_cudnn_rnn_backward" if backward else "aten::_cudnn_rnn"
    builder = TraceBuilder().op(op, 0, 1000, dims=dims, types=types, concrete=concrete)
    for i, name in enumerate(names):
        builder.kernel(name, 2000 + 40 * i, 10 + i, launch=10 + i)
    return build_kernel_table(builder.load().rank())


def flops(kernels: pl.DataFrame) -> float:
    known = kernels.filter(pl.col("m").is_not_null())
    return add_work(add_law(complete_columns(known)))["work_flops"].sum()


def forward_flops(gates: int = 4) -> int:
    first, second = 2 * gates * WIDTH * (WIDE + WIDTH), 2 * gates * WIDTH * (2 * WIDTH + WIDTH)
    return 2 * STEPS * BATCH * (first + second)


def test_persistent_kernels_have_the_steps_and_the_others_the_inputs():
    kernels = cudnn([GEMM, PERSISTENT, GEMM, PERSISTENT, POINTWISE])
    rows = kernels.filter(pl.col("name") == PERSISTENT).rows(named=True)
    # Each both directions of a layer.
    assert [(row["batch"], row["m"], row["n"], row["k"], row["share"]) for row in rows] == [(2, 15, 32, 8, 1.0)] * 2
    # Weights once; for each token the gates in and the state out.
    assert rows[0]["bytes"] == 2 * 4 * (32 * 8 + 15 * (32 + 8))
    inputs = kernels.filter(pl.col("name") == GEMM).rows(named=True)
    assert [(row["m"], row["n"], row["k"]) for row in inputs] == [(15, 32, 2 * 16 + 2 * 16)] * 2
    assert sum(row["share"] for row in inputs) == pytest.approx(1)
    assert flops(kernels) == pytest.approx(forward_flops())
    pointwise = kernels.filter(pl.col("name") == POINTWISE).row(0, named=True)
    assert (pointwise["family"], pointwise["bytes"]) == ("elementwise", None)


@pytest.mark.parametrize("steps", [STEPS, STEPS - 1], ids=["all", "without the first"])
def test_kernels_that_run_once_a_step_are_the_steps(steps):
    kernels = cudnn([GEMM, GEMM, *[STEP, POINTWISE] * (steps * CELLS)])
    rows = kernels.filter(pl.col("name") == STEP)
    assert rows.select("batch", "m", "n", "k", "share").unique().rows() == [(1, 3, 32, 8, 1.0)]
    missing = (STEPS - steps) * CELLS * 2 * BATCH * 32 * 8
    assert flops(kernels) == pytest.approx(forward_flops() - missing)


@pytest.mark.parametrize("gates", [3, 4], ids=["GRU", "LSTM"])
def test_what_cannot_be_told_apart_shares_all(gates):
    kernels = cudnn([GEMM] * 7, gates=gates)
    assert flops(kernels) == pytest.approx(forward_flops(gates))
    share = kernels["dur_ns"] / kernels["dur_ns"].sum()
    assert kernels["share"].to_list() == pytest.approx(share.to_list())


@pytest.mark.parametrize(("mask", "times"), [("[True, True, True, True]", 2), ("[True, True, True, False]", 1)])
def test_the_backward_pass_has_both_gradients_where_both_are_asked_for(mask, times):
    persistent = PERSISTENT.replace("_fp_", "_bp_")
    for names in ([GEMM, persistent, persistent, GEMM], [GEMM] * 5, [GEMM, *[STEP] * (STEPS * CELLS)]):
        assert flops(cudnn(names, backward=True, mask=mask)) == pytest.approx(times * forward_flops())


def test_a_gru_of_miopen():
    weights = [[3 * WIDTH, WIDE], [3 * WIDTH, WIDTH], [3 * WIDTH], [3 * WIDTH]]
    dims = [[STEPS, BATCH, WIDE], weights, [], [1, BATCH, WIDTH], *[[]] * 10]
    name = "Cijk_Alik_Bljk_SB_MT32x32x64_SN_1LDSB0_APM1"
    builder = TraceBuilder().op("aten::miopen_rnn", 0, 99, dims=dims, types=["float", "TensorList", "", "float"])
    builder.kernel(name, 200, 10, launch=10).kernel("LSTMFwdHidUpdate", 220, 10, launch=20)
    assert flops(build_kernel_table(builder.load().rank())) == 2 * STEPS * BATCH * 3 * WIDTH * (WIDE + WIDTH)


def test_lists_of_weights_that_were_not_recorded_leave_the_work_open():
    dims = [[STEPS, BATCH, WIDE], [], [], [], [1, BATCH, WIDTH]]
    builder = TraceBuilder().op("aten::_cudnn_rnn", 0, 99, dims=dims, types=["float", "TensorList", "", "", "float"])
    row = build_kernel_table(builder.kernel(GEMM, 200, 10, launch=10).load().rank()).row(0, named=True)
    assert (row["family"], row["m"], row["work_from"]) == ("gemm", None, None)


def test_cells_of_pytorch():
    gates, state, bias = [BATCH, 4 * WIDTH], [BATCH, WIDTH], [4 * WIDTH]
    dims, name = [gates, gates, state, bias, bias], "void at::native::kernel::lstm_cell_forward<float, float, int, 2>"
    builder = TraceBuilder().op("aten::_thnn_fused_lstm_cell", 0, 50, dims=dims, types=["float"] * 5)
    row = build_kernel_table(builder.kernel(name, 60, 5, launch=5).load().rank()).row(0, named=True)
    # In: both gates, the state, biases. Out: both states and the gates.
    assert (row["family"], row["bytes"]) == ("elementwise", 4 * (BATCH * WIDTH * (8 + 1 + 2 + 4) + 8 * WIDTH))


def test_all_products_together_are_what_torch_counts():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    lstm = torch.nn.LSTM(WIDE, WIDTH, num_layers=2, bidirectional=True)
    # oneDNN takes fp32 only; without it every product is an op of its own.
    with FlopCounterMode(display=False) as counter:
        lstm.double()(torch.ones(STEPS, BATCH, WIDE, dtype=torch.float64))
    assert counter.get_total_flops() == forward_flops()
