"""A measured CPU as a device file, and what ops do to each element there."""

from pathlib import Path

import polars as pl
import pytest

from predictors import load_gpu
from tracekit.hosts.cpu_bench import CpuBench
from tracekit.prediction.cpu_elements import add_element_clocks, count_elements

BENCH = CpuBench("A CPU", 4, "avx512-bf16", {"fp32": 312.0, "bf16": 704.0}, 60.0, 3000.0, 2**20, 2**25, 4, 2**34)


def test_the_peak_is_what_was_measured_over_the_fraction_that_products_reach(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(BENCH.to_toml(), encoding="utf-8")
    cpu = load_gpu(str(path))
    assert dict(cpu.vector_tflops) == pytest.approx({"fp64": 0.2, "fp32": 0.4, "bf16": 0.8})
    assert (cpu.sms, cpu.bandwidth_gbps, cpu.memory_bytes) == (4, 80.0, 2**34)
    assert load_gpu("mine") == cpu  # by its name from then on


def test_a_function_takes_clocks_for_each_element() -> None:
    """1,024 x 37 elements in two threads: 1.4 clocks of 3.7 GHz each for gelu, none for what was measured."""
    table = pl.DataFrame(
        {"op": ["aten::gelu"] * 2 + ["aten::add"], "name": ["k"] * 3, "input_dims": ["[[1024,37],[]]"] * 3}
    )
    times = pl.DataFrame(
        {"method": ["law", "measured", "law"], **dict.fromkeys(("time_us", "low_us", "high_us"), [10.0] * 3)}
    )
    cpu = load_gpu("epyc-9r14:8")
    more_us = 1024 * 37 * 1.4 / 2 / 3700
    found = add_element_clocks(table, times, cpu)
    assert found["time_us"].to_list() == pytest.approx([10 + more_us, 10, 10])
    assert found["high_us"][0] / found["time_us"][0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("dims", "elements"), [("[[2,3],[3]]", 6), ("[[],[4,5]]", 20), ("[[[2,2],[2,2]],[]]", 0), ("[]", 0)]
)
def test_elements_of_the_largest_input(dims: str, elements: int) -> None:
    assert count_elements(dims) == elements
