"""Published recommenders: kernels of NVIDIA's DLRM as its sources launch them, look-ups as benchmarks drew them."""

import numpy as np
import polars as pl
import pytest

from tests.validation.published_jobs.dlrm import BOTTOM, DENSE, OUTPUT, TABLE_ROWS, TOP, WIDTH, Dlrm
from tests.validation.studies.kernels import published_lookups
from tests.validation.studies.whole_jobs import recommenders
from tests.validation.study import read_published

BATCH = 64
PARAMETERS = 13 * 512 + 512 * 256 + 256 * 128 + 480 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
"""Weights of the two MLPs and of the output layer."""


def list_gemms(model: Dlrm, *, trains: bool = False) -> list[tuple[int, int, int]]:
    calls = model.list_training() if trains else model.list_inference()
    kernels = (kernel for call in calls for kernel in call.kernels if kernel["family"] == "gemm")
    return [(int(kernel["m"] or 0), int(kernel["n"] or 0), int(kernel["k"] or 0)) for kernel in kernels]


def test_the_tables_are_those_of_the_small_model() -> None:
    assert len(TABLE_ROWS) == 26
    assert 4 * WIDTH * sum(TABLE_ROWS) / 2**30 == pytest.approx(15.6, abs=0.05)


@pytest.mark.parametrize(("dtype", "calls"), [("fp16", 7), ("tf32", 6)])
def test_the_host_makes_a_call_for_each_mlp(dtype: str, calls: int) -> None:
    found = list(Dlrm(BATCH, dtype).list_inference())
    assert len(found) == calls
    assert [len(call.kernels) for call in found if call.name.endswith("MLP")] == [6, 8]
    assert sum(len(call.kernels) for call in found) == calls - 2 + 14


def test_a_forward_pass_multiplies_each_sample_with_all_weights() -> None:
    gemms = list_gemms(Dlrm(BATCH, "fp16"))
    assert gemms[0] == (BATCH, 512, 13)
    assert sum(m * n * k for m, n, k in gemms) == BATCH * PARAMETERS


def test_a_training_step_has_three_times_the_gemms_but_for_the_dense_features_gradient() -> None:
    gemms = list_gemms(Dlrm(BATCH, "fp32", trains=True), trains=True)
    assert sum(m * n * k for m, n, k in gemms) == BATCH * (3 * PARAMETERS - BOTTOM[0] * BOTTOM[1])
    assert len(gemms) == 3 * (len(BOTTOM) + len(TOP) + len(OUTPUT) - 3) - 1


def test_mixed_precision_keeps_the_tables_in_fp32_where_they_are_trained() -> None:
    assert {one.weight_bytes for one in Dlrm(BATCH, "fp16", trains=True).tables} == {4}
    assert {one.weight_bytes for one in Dlrm(BATCH, "fp16").tables} == {2}
    casts = [call for call in Dlrm(BATCH, "fp16", trains=True).list_inference() if "MLP, cast" in call.name]
    assert len(casts) == 2 * 7


def test_a_graphs_inputs_are_copied_on_the_gpu() -> None:
    copies = [call.kernels[0] for call in Dlrm(BATCH, "fp32").list_input_copies()]
    assert [copy["bytes"] for copy in copies] == [BATCH * 26 * 8, BATCH * DENSE * 4]
    assert {copy["copy_kind"] for copy in copies} == {"DtoD"}


def test_a_step_is_the_gpus_with_a_graph_and_the_hosts_without() -> None:
    calls = list(Dlrm(BATCH, "tf32").list_inference())
    kernels_us = np.full(sum(len(call.kernels) for call in calls), 10.0)
    graph_us, eager_us = (recommenders.time_step(calls, kernels_us, host, "a100-sxm-80gb") for host in (0.5, 100.0))
    assert graph_us == pytest.approx(kernels_us.sum(), abs=15)
    # Further kernels of a call take 0.15 of its first one's time.
    assert eager_us == pytest.approx(100 * (4 + (1 + 0.15 * 5) + (1 + 0.15 * 7)), abs=20)


def test_a_slower_host_widens_the_interval_only_where_it_has_a_part() -> None:
    row = {"source": "x", "step": "infer", "gpu": "a100-sxm-80gb", "batch": 2, "precision": "fp16"}
    graph, eager = (recommenders.predict_row({**row, "cuda_graphs": on, "samples_per_s": 1e4}) for on in (1, 0))
    assert graph.step_us < eager.step_us
    assert graph.high_us / graph.step_us < eager.high_us / eager.step_us
    assert eager.measured_us == 200.0


def test_fbgemms_benchmark_draws_evenly_up_to_an_alpha_of_one() -> None:
    rows = read_published("table_lookups").filter(pl.col("source").str.starts_with("fbgemm"))
    assert rows["alpha"].to_list() == [0.0, 0.0]
    table = published_lookups.build_lookup(rows.row(0, named=True))
    even = 1e7 * (1 - np.exp(-2097152 / 1e7))
    assert table.expect_unique() == pytest.approx(even, rel=1e-3)


def test_a_bag_of_pytorch_reads_its_rows_in_half_precision() -> None:
    rows = read_published("table_lookups").filter(pl.col("source") == published_lookups.BAGS_OF_PYTORCH)
    (kernel,) = published_lookups.list_kernels(rows.row(0, named=True))
    # 512 draws from 500 rows, 128 bags, and their indices and starts of 8 bytes each.
    different = 500 * (1 - (1 - 1 / 500) ** 512)
    assert kernel["bytes"] == pytest.approx(2 * 256 * (different + 128) + 8 * (512 + 128), rel=0.01)


def test_errors_are_summed_up_by_kind() -> None:
    row = {"source": "x", "gpu": "t4", "precision": "fp16", "cuda_graphs": 1, "batch": 1, "samples_per_s": 1e4}
    outcomes = [recommenders.Outcome(row, 110.0, 90.0, 120.0), recommenders.Outcome(row, 150.0, 120.0, 200.0)]
    cells = [("x", "t4", "fp16", "on"), ("all", "", "", "")]
    assert list(recommenders.summarise(outcomes)) == [(*kind, "2", "+30 %", "30 %", "1", "1") for kind in cells]
