"""The table of launches: every kernel with its work, its roofline, and each target's."""

import io

import polars as pl
import pytest

import tracekit as tk
from tests.asking import predict
from tests.conftest import SAMPLES
from tracekit.export.launch_tables import encode_launches
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

MM = "ampere_bf16_s16816gemm_bf16_128x128"


def read_table(run, targets=()):
    return pl.read_csv(io.BytesIO(encode_launches(run, targets, "csv")))


def build_run(**device):
    builder = TraceBuilder(**device)
    builder.op("aten::mm", 0, 20, dims=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
    builder.kernel(MM, 20, 900, launch=5)
    builder.op("aten::add", 930, 20, dims=[[4096, 4096], [4096, 4096], []], types=["float", "float", "Scalar"])
    builder.kernel("vectorized_elementwise_kernel", 960, 150, launch=940)
    builder.op("other::op", 1300, 20).kernel("some_kernel", 1330, 50, launch=1310)
    return prepare_run(builder.load())


def test_work_bound_and_utilization_of_each_kernel():
    product, addition, other = read_table(build_run()).to_dicts()
    assert (product["work_flops"], product["work_bytes"]) == (2 * 4096**3, 3 * 4096**2 * 2)
    assert product["bound_us"] == pytest.approx(2 * 4096**3 / 312e12 * 1e6, rel=0.01)  # an A100's datasheet
    assert product["utilization"] == pytest.approx(100 * product["bound_us"] / 900)
    assert addition["work_bytes"] == 3 * 4096**2 * 4
    assert addition["bound_us"] == pytest.approx(3 * 4096**2 * 4 / 2039e9 * 1e6, rel=0.01)
    assert (product["limiter"], addition["limiter"]) == ("compute", "memory")
    assert {other[name] for name in ("work_flops", "work_bytes", "bound_us", "limiter", "utilization")} == {None}


# Attention whose bias, read at the full rate, takes longer than its arithmetic at the peak, which no kernel reaches.
def test_the_limiter_is_what_the_bound_depends_on():
    op, query = "aten::_scaled_dot_product_efficient_attention", [1, 16, 4096, 80]
    builder = TraceBuilder().op(op, 0, 20, dims=[*[query] * 3, [1, 16, 4096, 4096]], types=["c10::BFloat16"] * 4)
    builder.kernel("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", 20, 900, launch=5)
    (row,) = read_table(prepare_run(builder.load())).to_dicts()
    assert row["bound_us"] == pytest.approx(578_813_952 / 2039e9 * 1e6, rel=0.01)
    assert row["limiter"] == "memory"


def test_a_target_has_its_own_bound():
    run = build_run()
    product = read_table(run, predict(run, ["h100-sxm"]).targets).row(0, named=True)
    assert product["h100-sxm.bound_us"] == pytest.approx(2 * 4096**3 / 989.4e12 * 1e6, rel=0.01)
    share = 100 * product["h100-sxm.bound_us"] / product["h100-sxm.time_us"]
    assert product["h100-sxm.utilization"] == pytest.approx(share)


def test_a_target_has_its_own_tiles():
    """4096 x 4096 in tiles of 128 x 256 are 512 blocks for 132 SMs; with two ranks a product is another."""
    run = build_run()
    product, addition, _ = read_table(run, predict(run, ["h100-sxm"]).targets).to_dicts()
    names = [f"h100-sxm.{name}" for name in ("tile_m", "tile_n", "split_k", "waves")]
    assert [product[name] for name in names] == [128, 256, 1, pytest.approx(512 / 132)]
    assert [addition[name] for name in names] == [None] * 4
    twice = predict(run, ["h100-sxm"], batch=2).targets
    assert [read_table(run, twice).row(0, named=True)[name] for name in names] == [None] * 4


def test_work_is_known_without_the_gpu():
    product = read_table(build_run(device={"name": "Voodoo 5"})).row(0, named=True)
    assert product["work_flops"] == 2 * 4096**3
    assert {product[name] for name in ("bound_us", "limiter", "utilization")} == {None}


@pytest.mark.parametrize("name", ["synthetic_transformer_train", "synthetic_transformer_inference"])
def test_every_kernel_with_work_has_all_of_it(name):
    table = read_table(prepare_run(tk.load(SAMPLES / f"{name}.json.gz")))
    worked = table.filter(pl.col("work_from").is_not_null(), pl.col("family") != "collective")
    assert worked.height > table.height / 2
    assert worked.select("work_flops", "work_bytes", "bound_us", "limiter", "utilization").null_count().row(0) == (
        (0,) * 5
    )
