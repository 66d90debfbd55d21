"""Kernels without a shape: the fixed part first, then the resource of their family."""

from __future__ import annotations

import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.hardware import GEFORCE_CLOCK_FACTOR, derive_hardware
from predictors.without_shapes import FIXED_LATENCY_CYCLES

A100, H100 = load_gpu("a100-sxm-80gb"), load_gpu("h100-sxm")


def scaled(source: str, target: str, **columns: object) -> dict[str, object]:
    frame = pl.DataFrame({name: [value] for name, value in columns.items()})
    return predict(frame, target, source_gpu=source).row(0, named=True)


def test_a_memory_kernel_goes_with_the_bandwidth_but_for_its_fixed_part():
    row = scaled("a100-sxm-80gb", "h100-sxm", family="norm", measured_us=1000.0)
    fixed = FIXED_LATENCY_CYCLES / A100.boost_clock_mhz
    expected = fixed * A100.boost_clock_mhz / H100.boost_clock_mhz + (1000 - fixed) * 2039 / 3352
    assert row["method"] == "scaled"
    assert row["time_us"] == pytest.approx(expected)
    assert row["low_us"] < row["time_us"] < row["high_us"]


def test_a_kernel_that_works_out_where_elements_lie_gains_half_of_the_bandwidth():
    """An H200 has an H100's SMs and clock, and 1.43 times its bandwidth: 1.2 is the mean of that and 1."""
    row = scaled("h100-sxm", "h200-sxm", family="copy", indexed=True, measured_us=10000.0)
    assert row["time_us"] == pytest.approx(10000 * (3352 / 4800) ** 0.5, rel=0.01)
    assert row["low_us"] < 10000 * 3352 / 4800
    assert row["high_us"] > 10000
    plain = scaled("h100-sxm", "h200-sxm", family="copy", indexed=False, measured_us=10000.0)
    assert plain["time_us"] == pytest.approx(10000 * 3352 / 4800, rel=0.01)


def test_a_tiny_kernel_only_gains_from_the_clock():
    row = scaled("a100-sxm-80gb", "h100-sxm", family="other", measured_us=2.0)
    assert row["time_us"] == pytest.approx(2.0 * A100.boost_clock_mhz / H100.boost_clock_mhz)


def test_fewer_blocks_than_sms_gain_nothing_from_more_of_them():
    row = scaled("a100-sxm-80gb", "h100-sxm", family="gemm", dtype="bf16", measured_us=500.0, blocks=4)
    assert row["time_us"] == pytest.approx(500 * A100.boost_clock_mhz / H100.boost_clock_mhz)


@pytest.mark.parametrize(
    ("source", "target", "dtype", "ratio"),
    [
        ("h800-sxm", "a100-sxm-80gb", "fp8", 1978.9 / 312),
        ("h800-sxm", "v100-sxm-32gb", "fp8", 1978.9 / 125),
        ("a100-sxm-80gb", "v100-sxm-32gb", "bf16", 312 / 125),
        ("b200", "h100-sxm", "nvfp4", load_gpu("b200").tensor_tflops["fp4"] / 1978.9),
        ("h100-sxm", "v100-sxm-32gb", "int8", 1978.9 / 125),
        ("mi355x", "a100-sxm-80gb", "mxfp4", load_gpu("mi355x").tensor_tflops["fp4"] / 312),
        ("a100-sxm-80gb", "v100-sxm-32gb", "tf32", 156 / 15.7),
    ],
)
@pytest.mark.parametrize("blocks", [None, 100_000])
def test_a_dtype_that_a_gpu_lacks_goes_with_the_one_that_runs_instead(source, target, dtype, ratio, blocks):
    row = scaled(source, target, family="moe", dtype=dtype, measured_us=1e5, blocks=blocks)
    assert row["time_us"] == pytest.approx(1e5 * ratio, rel=1e-3)
    beyond = 2 if load_gpu(source).vendor == load_gpu(target).vendor else 3
    assert row["high_us"] < beyond * row["time_us"]


def test_a_gpu_has_a_rate_in_any_dtype():
    """In that of what runs instead, at its own rate; in fp64 a 64th of fp32 where there is none."""
    v100, a100, rtx = (derive_hardware(load_gpu(name)) for name in ("v100-sxm-32gb", "a100-sxm-80gb", "rtx-4060"))
    assert [a100.get_tflops(dtype) for dtype in ("fp8", "fp8_block", "nvfp4", "mxfp8")] == [312.0] * 4
    assert [v100.get_tflops(dtype) for dtype in ("bf16", "fp8", "int8", "tf32")] == [125.0, 125.0, 125.0, 15.7]
    assert a100.get_tflops("int8") == 624
    assert a100.on_mma.get_tflops("fp8") == a100.get_tflops("bf16")
    assert rtx.get_tflops("fp64") <= rtx.get_tflops("fp32") / 32


def test_most_of_the_sms_are_not_few():
    """112 blocks on an H800 leave 20 of its 132 SMs to others: an L40S has 733 TFLOP/s in fp8, of 1978.9."""
    row = scaled("h800-sxm", "l40s", family="moe", dtype="fp8", measured_us=1000.0, blocks=112)
    assert row["time_us"] == pytest.approx(1000 * 1978.9 / 733, rel=0.005)


def test_few_blocks_lose_what_one_sm_loses():
    """40 blocks: 1978.9 TFLOP/s on 132 SMs become 733 on 142, 989.4 become 312 on 108."""
    l40s = scaled("h800-sxm", "l40s", family="moe", dtype="fp8", measured_us=10000.0, blocks=40)
    assert l40s["time_us"] == pytest.approx(10000 * 1978.9 / 132 / (733 / 142), rel=0.002)
    a100 = scaled("h100-sxm", "a100-sxm-80gb", family="moe", dtype="fp16", measured_us=10000.0, blocks=40)
    assert a100["time_us"] == pytest.approx(10000 * 989.4 / 132 / (312 / 108), rel=0.002)


def test_what_multiplies_in_an_untold_precision_goes_with_the_16_bit_rates():
    """The first is a mixture of experts: in fp32 an RTX 4090 (82.6 TFLOPS) would run it faster than an H100 (66.9)."""
    h100, rtx = (scaled("mi300x", gpu, family="moe", measured_us=1000.0)["time_us"] for gpu in ("h100-sxm", "rtx-4090"))
    assert h100 == pytest.approx(1000 * 1307.4 / 989.4, rel=0.01)
    assert rtx == pytest.approx(1000 * 1307.4 / (165.2 * GEFORCE_CLOCK_FACTOR), rel=0.02)


def test_the_interval_holds_what_any_resource_would_give():
    row = scaled("a100-sxm-80gb", "h100-sxm", family="other", measured_us=10000.0)
    assert row["low_us"] < 10000 * 2039 / 3352 < row["high_us"]
    assert row["low_us"] < 10000 * 312 / 989.4 < row["high_us"]


def test_a_collective_is_kept_with_a_wide_interval():
    row = scaled("a100-sxm-80gb", "h100-sxm", family="collective", collective="all_reduce", bytes=1e6, measured_us=70.0)
    assert (row["method"], row["time_us"], row["limiter"]) == ("kept", 70.0, "link")
    assert row["low_us"] < 40
    assert row["high_us"] > 130


@pytest.mark.parametrize("side", [1024, 4096, 16384])
def test_a_product_without_a_shape_goes_with_one_that_takes_as_long(side):
    shape = pl.DataFrame({"family": ["gemm"], "dtype": ["bf16"], "m": [side], "n": [side], "k": [side]})
    here, there = (predict(shape, gpu)["time_us"][0] for gpu in ("a100-sxm-80gb", "h100-sxm"))
    row = scaled("a100-sxm-80gb", "h100-sxm", family="gemm", dtype="bf16", measured_us=here)
    assert row["method"] == "scaled"
    assert row["time_us"] == pytest.approx(there, rel=0.05)
    assert row["low_us"] < there < row["high_us"]


def test_a_narrow_tile_tells_a_product_that_streams_a_weight():
    # It goes with the memory, which is 1.64 times as fast there by the datasheet; the arithmetic is 3.2 times.
    narrow = scaled("a100-sxm-80gb", "h100-sxm", family="gemm", dtype="bf16", measured_us=90.0, tile_m=8, tile_n=64)
    wide = scaled("a100-sxm-80gb", "h100-sxm", family="gemm", dtype="bf16", measured_us=90.0, tile_m=128, tile_n=256)
    assert narrow["time_us"] == pytest.approx(90 * 2039 / 3352, rel=0.2)
    assert wide["time_us"] < 0.9 * narrow["time_us"]


@pytest.mark.parametrize("family", ["gemm", "moe"])
def test_few_tokens_tell_a_product_that_waits_for_its_weights(family):
    """An H200 is an H100 with 4,800 GB/s instead of 3,352: 100 us, 5 to 10 of them latency, take about 72."""
    one = scaled("h100-sxm", "h200-sxm", family=family, dtype="bf16", measured_us=100.0, tokens=1)
    untold = scaled("h100-sxm", "h200-sxm", family=family, dtype="bf16", measured_us=100.0)
    assert one["time_us"] == pytest.approx(5 + 95 * 3352 / 4800, rel=0.04)
    assert untold["time_us"] > 90
    assert one["low_us"] < 100 * 3352 / 4800 < one["high_us"]


@pytest.mark.parametrize("family", ["gemm", "moe"])
def test_many_tokens_leave_things_as_they_are(family):
    told, untold = (
        scaled("h100-sxm", "h200-sxm", family=family, dtype="bf16", measured_us=100.0, tokens=tokens)
        for tokens in (8192, None)
    )
    assert told == untold


def test_experts_in_an_untold_precision_go_with_the_memory_too():
    """16 bits are taken: from an H100 to an L40S, of about a quarter of its bandwidth."""
    row = scaled("h100-sxm", "l40s", family="moe", measured_us=500.0, tokens=16)
    assert row["time_us"] == pytest.approx(500 * 3352 / 864, rel=0.15)


def test_a_product_by_a_vector_has_one_row_however_many_tokens_there_are():
    one, batched = (
        scaled("a100-sxm-80gb", "h100-sxm", family="gemm", dtype="bf16", measured_us=90.0, tile_m=1, tokens=tokens)
        for tokens in (None, 64)
    )
    assert one == batched


def test_a_product_whose_weights_are_known_waits_for_them_where_it_is_as_short_as_they_take():
    """32 experts of 29 MB take an H200 196 µs at 4.8 TB/s; an H20 has 4.0, and a seventh of the arithmetic.

    There, the arithmetic of tiles of 64 to 128 rows, however few are filled, takes 406 to 812 µs.
    """
    kernel = {"family": "gemm", "dtype": "fp8", "measured_us": 245.0}
    told = scaled("h200-sxm", "h20", **kernel, batch=32, n=4096, k=7168)
    untold = scaled("h200-sxm", "h20", **kernel)
    assert 245 * 4.8 / 4.0 < told["time_us"] < 812
    assert untold["time_us"] > 1.4 * told["time_us"]


def test_a_product_whose_weights_are_known_goes_with_the_arithmetic_where_it_takes_longer():
    told = scaled("h200-sxm", "h20", family="gemm", dtype="fp8", measured_us=3000.0, n=4096, k=7168)
    # The H200's board limits it to two thirds of the peak, that of the H20 doesn't: 6.7 times becomes 4.4 times.
    assert 4 * 3000 < told["time_us"] < 6.7 * 3000


def test_known_shapes_go_before_tokens():
    shape = {"family": "gemm", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096, "measured_us": 250.0}
    assert scaled("h100-sxm", "h200-sxm", **shape, tokens=1) == scaled("h100-sxm", "h200-sxm", **shape)


def test_a_product_longer_than_any_goes_with_the_longest():
    times = [
        scaled("a100-sxm-80gb", "h100-sxm", family="gemm", dtype="bf16", measured_us=us)["time_us"] for us in (1e8, 2e8)
    ]
    assert times[1] == pytest.approx(2 * times[0])


def test_attention_that_splits_its_keys_goes_with_the_memory():
    # 2.6 times the arithmetic, 0.26 of the bandwidth.
    prefill, decode = (
        scaled("h100-sxm", "l40s", family="attention", dtype="bf16", measured_us=100.0, split_k=splits)["time_us"]
        for splits in (False, True)
    )
    shapes = pl.DataFrame(
        {"family": ["attention"], "dtype": ["bf16"], "batch": [8], "heads": [32], "q_len": [2048], "kv_len": [2048],
         "head_dim": [128], "causal": [True]}
    )  # fmt: skip
    here, there = (predict(shapes, gpu)["time_us"][0] for gpu in ("h100-sxm", "l40s"))
    measured = scaled("h100-sxm", "l40s", family="attention", dtype="bf16", measured_us=here)
    assert measured["time_us"] == pytest.approx(there, rel=0.1)
    assert decode == pytest.approx(100 * 3352 / 864, rel=0.35)
    assert decode != pytest.approx(prefill, rel=0.05)


def test_kinds_without_shapes_go_their_own_ways_side_by_side():
    kinds = [
        {"family": "attention", "split_k": True},
        {"family": "attention", "split_k": False},
        {"family": "gemm", "tile_m": 8, "tile_n": 64},
        {"family": "conv"},
    ]
    rows = [kind | {"dtype": "bf16", "measured_us": 80.0} for kind in kinds]
    together = predict(pl.DataFrame(rows, infer_schema_length=None), "h100-sxm", source_gpu="a100-sxm-80gb")
    alone = [scaled("a100-sxm-80gb", "h100-sxm", **row)["time_us"] for row in rows]
    assert together["time_us"].to_list() == pytest.approx(alone)
