"""What share of the peak a step uses: worked by hand, and all parts add up to the step."""

import polars as pl
import pytest

import tracekit as tk
from predictors import load_gpu
from predictors.hardware import derive_hardware
from tracekit.packaged import find_samples
from tracekit.render.facts import describe_peak_use
from tracekit.reporting.sections.peak_use import sum_products
from tracekit.testing import TraceBuilder

H100 = load_gpu("h100-sxm")
PEAK = derive_hardware(H100).get_tflops("bf16") * 1e6
"""Operations in a microsecond."""
MEMORY = H100.bandwidth_gbps * 1e3


def make_products(*rows: tuple[str, str, float, float, float]) -> pl.DataFrame:
    """Make products of ``(family, phase, microseconds at the peak, at the memory's rate, time)``."""
    names = ("family", "phase", "work_flops", "work_bytes", "time_us")
    scaled = [(family, phase, peak * PEAK, memory * MEMORY, time) for family, phase, peak, memory, time in rows]
    return pl.DataFrame(scaled, schema=names, orient="row").with_columns(dtype=pl.lit("bf16"))


def test_products_beyond_a_backward_pass_of_twice_the_forward_one_are_recomputed():
    products = make_products(
        ("gemm", "forward", 100, 10, 150), ("gemm", "backward", 300, 20, 400), ("attention", "forward", 20, 1, 30)
    )
    sums = sum_products(products, H100, "time_us", 2, has_phases=True)
    assert sums.peak_us == pytest.approx(420 / 2)
    assert sums.recomputed_us == pytest.approx((300 - 2 * 100) / 2)
    assert sums.time_us == pytest.approx(580 / 2)
    assert sums.memory_us == 0
    assert sum_products(products, H100, "time_us", 2, has_phases=False).recomputed_us == 0


def test_products_of_an_optimizer_are_told_apart():
    products = make_products(("gemm", "forward", 100, 10, 150), ("gemm", "optimizer", 60, 5, 90))
    sums = sum_products(products, H100, "time_us", 2, has_phases=True)
    assert (sums.peak_us, sums.update_us, sums.recomputed_us) == pytest.approx((160 / 2, 60 / 2, 0))


def test_a_product_waits_for_memory_by_what_its_bytes_take_beyond_its_operations():
    products = make_products(("gemm", "forward", 10, 40, 60), ("gemm", "forward", 10, 90, 70))
    sums = sum_products(products, H100, "time_us", 1, has_phases=False)
    assert sums.memory_us == pytest.approx((40 - 10) + (70 - 10))


def test_a_clock_above_the_datasheet_makes_no_share_above_all():
    assert sum_products(make_products(("gemm", "forward", 10, 1, 8)), H100, "time_us", 1, has_phases=False).peak_us == 8


@pytest.mark.parametrize("name", ["synthetic_transformer_train", "synthetic_transformer_inference"])
def test_the_parts_of_each_step_add_up_to_it(name):
    report = tk.report(tk.predict(tk.load(find_samples()[name]), gpu=["l4", "h100-sxm"]))
    steps = {None: report.source.step_time_us} | {one.label: one.step.step_time_us for one in report.targets}
    assert {row.on for row in report.peak_use} == set(steps)
    for on, step_us in steps.items():
        rows = [row for row in report.peak_use if row.on == on]
        assert sum(row.share for row in rows) == pytest.approx(100, abs=0.1)
        assert sum(row.time_us for row in rows) == pytest.approx(step_us, rel=1e-3)
    lines = describe_peak_use(report)
    assert len(lines) == len(steps)
    assert all("MFU" in line for line in lines)


def test_a_step_in_another_layout_or_of_an_unknown_gpu_has_none():
    trace = tk.load(find_samples()["synthetic_transformer_train"])
    assert {row.on for row in tk.report(tk.predict(trace, gpu="l4", batch=2)).peak_use} == {None}
    unknown = TraceBuilder({"name": "X", "numSms": 0, "totalGlobalMem": 0}).kernel("k", 5, 100, launch=0).load()
    assert tk.report(unknown).peak_use == ()
