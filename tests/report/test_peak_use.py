"""What share of the peak a step uses: worked by hand, and all parts add up to the step."""

import polars as pl
import pytest

import tracekit as tk
from predictors import load_gpu
from predictors.hardware import derive_hardware
from tests.jobs import job
from tracekit.packaged import find_samples
from tracekit.render.facts import describe_peak_use
from tracekit.reporting.peak_losses import PARTS, split_products
from tracekit.testing import TraceBuilder

H100 = load_gpu("h100-sxm")
PEAK = derive_hardware(H100).get_tflops("bf16") * 1e6
"""Operations in a microsecond."""
MEMORY = H100.bandwidth_gbps * 1e3


def make_products(*rows: tuple[str, str, float, float, float], dtype: str = "bf16", waves: float = 2.0) -> pl.DataFrame:
    """Make products of ``(family, phase, microseconds at the 16-bit peak, at the memory's rate, time)``."""
    names = ("family", "phase", "work_flops", "work_bytes", "time_us")
    scaled = [(family, phase, peak * PEAK, memory * MEMORY, time) for family, phase, peak, memory, time in rows]
    return pl.DataFrame(scaled, schema=names, orient="row").with_columns(
        dtype=pl.lit(dtype), runs_as=pl.lit(None, pl.String), limiter=pl.lit("compute"), waves=pl.lit(waves)
    )


def split(products: pl.DataFrame, per_step: int = 1, step_us: float = 1e6, *, has_phases: bool = True) -> dict:
    parts = split_products(products, H100, step_us, per_step, has_phases=has_phases)
    sums = {part: parts[part].sum() for part in PARTS}
    assert sum(sums.values()) == pytest.approx(products["time_us"].sum())
    return sums


def test_products_beyond_a_backward_pass_of_twice_the_forward_one_are_recomputed():
    products = make_products(
        ("gemm", "forward", 100, 10, 150), ("gemm", "backward", 300, 20, 400), ("attention", "forward", 20, 1, 30)
    )
    sums = split(products)
    assert sums["recomputed"] == pytest.approx(300 - 2 * 100)
    assert sums["products"] == pytest.approx(420 - 100)
    assert sums["slow products"] == pytest.approx(580 - 420)
    assert split(products, has_phases=False)["recomputed"] == 0


def test_products_of_an_optimizer_are_told_apart():
    sums = split(make_products(("gemm", "forward", 100, 10, 150), ("gemm", "optimizer", 60, 5, 90)))
    assert (sums["products"], sums["products of the update"], sums["recomputed"]) == pytest.approx((100, 60, 0))


def test_a_product_waits_for_memory_by_what_its_bytes_take_beyond_its_operations():
    sums = split(make_products(("gemm", "forward", 10, 40, 60), ("gemm", "forward", 10, 90, 70)))
    assert sums["memory-bound products"] == pytest.approx((40 - 10) + (70 - 10))


def test_wide_formats_count_at_the_16_bit_peak_and_part_waves_by_the_last_round():
    # TF32 has half the 16-bit rate: 25 and 50; 3.25 rounds take as long as 4.
    sums = split(make_products(("gemm", "forward", 25, 1, 100), dtype="tf32", waves=3.25))
    assert (sums["products"], sums["wide formats"]) == pytest.approx((25, 25), rel=0.01)
    assert sums["part waves"] == pytest.approx(50 * (4 / 3.25 - 1), rel=0.01)
    assert split(make_products(("gemm", "forward", 25, 1, 100), dtype="fp64"))["wide formats"] == 0


def test_a_step_that_demands_more_than_the_board_gives_loses_clock():
    products = make_products(*[("gemm", "forward", 90, 30, 100)] * 10)
    assert split(products, step_us=1000)["power limit"] > 10
    assert split(products, step_us=10_000)["power limit"] == 0


def test_a_clock_above_the_datasheet_makes_no_share_above_all():
    assert split(make_products(("gemm", "forward", 10, 1, 8)))["products"] == 8


@pytest.mark.parametrize("name", ["synthetic_transformer_train", "synthetic_transformer_inference"])
def test_the_parts_of_each_step_add_up_to_it(name):
    report = tk.report(tk.predict(tk.load(find_samples()[name]), gpu=["l4", "h100-sxm"]))
    steps = {None: report.source.step_time_us} | {one.label: one.step.step_time_us for one in report.targets}
    assert {row.on for row in report.peak_use} == set(steps)
    for on, step_us in steps.items():
        rows = [row for row in report.peak_use if row.on == on]
        assert sum(row.share for row in rows) == pytest.approx(100, abs=0.1)
        assert sum(row.time_us for row in rows) == pytest.approx(step_us, rel=1e-3)
        phases = [row for row in report.peak_slices if row.on == on and row.kind == "phase"]
        if phases:
            assert sum(row.time_us for row in phases) == pytest.approx(step_us, rel=1e-3)
            points = sum(row.share - row.lost_share for row in phases)
            assert points == pytest.approx(next(row.share for row in rows if row.part == "products"), rel=1e-3)
    assert [one.mfu for one in report.targets] == [
        pytest.approx(next(row.share for row in report.peak_use if (row.on, row.part) == (one.label, "products")))
        for one in report.targets
    ]
    lines = describe_peak_use(report)
    assert len(lines) == len(steps)
    assert all("MFU" in line for line in lines)


def test_edits_bring_the_mfu_that_their_replay_tells():
    trace = tk.load(find_samples()["synthetic_transformer_train"])
    source = tk.report(trace)
    row = next(one for one in source.peak_use if one.part == "optimizer")
    edited = tk.report(tk.predict(trace, gpu="l4", what_if=[row.edit]))
    assert edited.what_if[0].mfu == pytest.approx(row.mfu_with_edit)
    assert row.mfu_with_edit > source.source.mfu
    removed = tk.report(tk.predict(trace, gpu="l4", what_if=["remove(family=gemm)"]))
    assert removed.what_if[0].mfu is None


def test_two_ranks_use_as_much_of_the_peak_as_each():
    mm = {"dims": [[4096, 4096], [4096, 4096]], "types": ["c10::BFloat16"] * 2}
    rank = TraceBuilder().op("aten::mm", 0, 6, **mm).kernel("ampere_bf16_s16816gemm_bf16_128x128", 10, 1000, launch=1)
    one, both = (tk.report(job(*[rank] * ranks)).source for ranks in (1, 2))
    peak_us = 2 * 4096**3 / (derive_hardware(load_gpu("a100-sxm-80gb")).get_tflops("bf16") * 1e6)
    assert one.mfu == pytest.approx(100 * peak_us / one.step_time_us)
    assert both.mfu == pytest.approx(100 * peak_us / both.step_time_us)


def test_a_step_in_another_layout_is_told_and_one_of_an_unknown_gpu_not():
    trace = tk.load(find_samples()["synthetic_transformer_train"])
    larger = tk.report(tk.predict(trace, gpu="l4", batch=2))
    shares = [row.share for row in larger.peak_use if row.on == "l4"]
    assert sum(shares) == pytest.approx(100, abs=0.1)
    unknown = TraceBuilder({"name": "X", "numSms": 0, "totalGlobalMem": 0}).kernel("k", 5, 100, launch=0).load()
    assert tk.report(unknown).peak_use == ()
