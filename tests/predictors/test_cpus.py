"""CPUs as devices: their files, their names, some of their cores, and the law of their ops."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from predictors import Batch, load_gpu, predict, resolve_gpu
from predictors.cpu_files import CPU_FILES, UNITS, list_cpus
from predictors.errors import InvalidGpuFileError

FLOPS_PER_CLOCK = {"avx2": 32, "avx512": 64, "avx512-bf16": 32, "amx": 64, "neon": 16, "sve": 32}
"""Of fp32, by a core: two units of 8 or 16 multiply-adds, or four of four; Zen 5 has those of an Intel core."""


@pytest.mark.parametrize("slug", list_cpus())
def test_a_cpus_figures_agree(slug: str) -> None:
    cpu = load_gpu(slug)
    per_clock = 64 if cpu.architecture == "zen5" else FLOPS_PER_CLOCK[cpu.compute_capability]
    assert cpu.is_cpu
    assert cpu.compute_capability in UNITS
    assert cpu.vector_tflops["fp32"] == pytest.approx(cpu.sms * cpu.boost_clock_mhz * per_clock / 1e6, rel=2e-3)
    assert cpu.vector_tflops["fp64"] == pytest.approx(cpu.vector_tflops["fp32"] / 2, rel=2e-3)
    assert cpu.sources


@pytest.mark.parametrize(
    ("name", "slug"),
    [("AMD EPYC 9654 96-Core Processor", "epyc-9654"), ("xeon 8480+", "xeon-8480"), ("NVIDIA Grace", "grace")],
)
def test_names_of_cpus(name: str, slug: str) -> None:
    assert resolve_gpu(name).gpu.slug == slug


def test_some_cores_have_their_part() -> None:
    whole, some = load_gpu("epyc-9654"), load_gpu("epyc-9654:12")
    assert (some.slug, some.sms) == ("epyc-9654:12", 12)
    assert some.vector_tflops["bf16"] == pytest.approx(whole.vector_tflops["bf16"] / 8)
    assert some.tdp_w == pytest.approx(45)
    assert some.last_level_cache_bytes == 64 * 2**20  # two of twelve groups of eight cores with 32 MiB each
    assert some.bandwidth_gbps == whole.bandwidth_gbps


@pytest.mark.parametrize("name", ["epyc-9654:97", "h100-sxm:4"])
def test_cores_that_arent_there(name: str) -> None:
    with pytest.raises(InvalidGpuFileError):
        resolve_gpu(name)


def test_a_users_file(tmp_path: Path) -> None:
    text = (CPU_FILES / "epyc-9654.toml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace("cores = 96", "cores = 48"), encoding="utf-8")
    assert load_gpu(f"{mine}:4").slug == "mine:4"
    mine.write_text(text.replace('"avx512-bf16"', '"mmx"'), encoding="utf-8")
    with pytest.raises(InvalidGpuFileError, match="units"):
        load_gpu(str(mine))


def make_products(dtype: str = "fp32", m: int = 512, **more: object) -> pl.DataFrame:
    return pl.DataFrame({"family": ["gemm"], "dtype": [dtype], "m": [m], "n": [768], "k": [768], **more})


def test_a_product_worked_out_by_hand() -> None:
    """2 x 512 x 768 x 768 FLOPs at 0.78 of 118.4 GFLOP/s, less 5/512, 12/768 and 16/768 for narrow sides."""
    compute_us = 2 * 512 * 768**2 / (3700 * 32 * 0.78 / (1 + 5 / 512 + 12 / 768 + 16 / 768))
    time_us = predict(make_products(), "epyc-9r14:1")["time_us"].item()
    assert time_us == pytest.approx(compute_us + 1.5, rel=1e-3)


def test_more_cores_take_less_and_more_work_takes_more() -> None:
    times = [predict(make_products(), f"epyc-9r14:{cores}")["time_us"].item() for cores in (1, 2, 8, 32)]
    assert times == sorted(times, reverse=True)
    assert (
        predict(make_products(m=1024), "grace")["time_us"].item() > predict(make_products(), "grace")["time_us"].item()
    )


def test_formats_without_units_run_in_fp32() -> None:
    found = predict(make_products("bf16"), "epyc-7763:1")
    assert found["runs_as"].item() == "fp32"
    assert predict(make_products("bf16"), "epyc-9654:1")["runs_as"].item() is None


def test_what_a_cpu_took_scales_by_the_laws_ratio() -> None:
    table = make_products(measured_us=[9000.0])
    same = predict(table, "epyc-9r14:1", source_gpu="epyc-9r14:1")
    other = predict(table, "epyc-9r14:2", source_gpu="epyc-9r14:1")
    alone = [predict(make_products(), f"epyc-9r14:{cores}")["time_us"].item() for cores in (1, 2)]
    assert (same["time_us"].item(), same["method"].item()) == (9000, "measured")
    assert other["time_us"].item() == pytest.approx(9000 * alone[1] / alone[0])
    assert other["low_us"].item() < other["time_us"].item() < other["high_us"].item()


def test_what_a_cpu_took_tells_nothing_of_a_gpu_and_a_gpu_nothing_of_a_cpu() -> None:
    table = make_products(measured_us=[9000.0])
    for source, target in (("epyc-9r14:1", "h100-sxm"), ("h100-sxm", "epyc-9r14:1")):
        there = Batch(table, source_gpu=source).on(target)
        assert there["time_us"].item() == pytest.approx(predict(make_products(), target)["time_us"].item())
        assert there["method"].item() == "law"
