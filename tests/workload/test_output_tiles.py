"""The size of a GEMM's output from its tile and grid, worked out by hand, and what is predicted with it."""

import polars as pl
import pytest

from predictors import predict
from tests.asking import predict as predict_step
from tracekit.run import prepare_run
from tracekit.testing import A100, TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

AMPERE = "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn"
"""Tiles of 256 columns and 128 rows."""
CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x5_tn_align{}>(Params)"
NVJET = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_TNT"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64_MI16x16x1"
H100 = {**A100, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9}


def record(name: str, blocks: int, annotation: str | None = None, gpu: dict = A100, dur: float = 300) -> TraceBuilder:
    builder = TraceBuilder(gpu).kernel(name, 20, dur, launch=10, grid=[blocks, 1, 1], block=[256, 1, 1])
    return builder if annotation is None else builder.annotation(annotation, 5, 20)


def cover(*args, **kwargs) -> tuple[int | None, int | None]:
    """Return the sides of the covered output."""
    table = build_kernel_table(record(*args, **kwargs).load().rank())
    return table.select("covered_m", "covered_n").row(0)


@pytest.mark.parametrize(
    ("blocks", "sides"),
    [
        (128, (16 * 128, 8 * 256)),
        (512, (32 * 128, 16 * 256)),
        (131, (131 * 128, 256)),
        (1, (128, 256)),
        (2_000_003, (None, None)),
    ],
)
def test_the_tiles_make_up_the_output_nearest_to_a_square(blocks, sides):
    assert cover(AMPERE, blocks) == sides


@pytest.mark.parametrize(
    ("name", "blocks", "gpu"),
    [
        (NVJET, 132, H100),
        (NVJET, 128, H100),
        (AMPERE, 108, A100),
        (AMPERE, 216, A100),
        ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_splitK_TNT", 64, H100),
        ("ampere_bf16_s16816gemm_bf16_128x32_ldg8_f2f_stages_64x3_tn", 96, A100),
        ("some_gemm_kernel", 96, A100),
    ],
)
def test_grids_that_say_nothing_of_the_output_tell_nothing(name, blocks, gpu):
    assert cover(name, blocks, gpu=gpu) == (None, None)


def test_a_kernel_since_hopper_with_fewer_blocks_than_sms_has_one_for_each_tile():
    assert cover(NVJET, 72, gpu=H100) == (6 * 256, 12 * 128)


def test_the_tokens_of_a_batch_are_the_rows():
    """200 tokens are two rows of tiles of 128, so 96 blocks are 48 columns of tiles of 256."""
    annotation = "execute_context_1(200)_generation_0(0)"
    assert cover(AMPERE, 96, annotation) == (200, 48 * 256)
    assert cover(AMPERE, 97, annotation) == (None, None)


def test_on_amd_the_name_does_not_tell_how_few_rows_are_split():
    assert cover(TENSILE, 96, "execute_context_1(200)_generation_0(0)") == (None, None)
    assert cover(TENSILE, 128) == (16 * 128, 8 * 256)


@pytest.mark.parametrize(("elements", "columns"), [(8, 1024), (2, 1022), (1, 1023)])
def test_a_kernel_for_unaligned_rows_has_such_rows(elements, columns):
    assert cover(CUTLASS.format(elements), 64) == (1024, columns)


def test_known_work_has_no_need_of_them():
    builder = record(AMPERE, 96).op("aten::mm", 5, 30, dims=[[1536, 64], [64, 2048]], types=["c10::BFloat16"] * 2)
    assert build_kernel_table(builder.load().rank()).select("m", "covered_m").row(0) == (1536, None)


def test_an_output_that_takes_long_to_write_is_not_taken_for_a_deep_product():
    """On an A100 131,072 x 4,096 with a depth of 64: memory sets its time on either GPU, not arithmetic."""
    shape = {"family": ["gemm"], "dtype": ["bf16"], "batch": [1], "m": [131_072], "n": [4_096], "k": [64]}
    here = predict(pl.DataFrame(shape), "a100-sxm-80gb")["time_us"][0]
    full = predict(pl.DataFrame(shape), "h100-sxm")["time_us"][0]
    blocks = (131_072 // 128) * (4_096 // 256)
    trace = record(AMPERE, blocks, dur=here).load()
    with_rule, without = (
        predict_step(prepare_run(trace, without_rules=rules), ["h100-sxm"]).targets[0]
        for rules in ([], ["output-tiles"])
    )
    times = [one.kernels["time_us"][0] for one in (with_rule, without)]
    assert times[0] == pytest.approx(full, rel=0.1)
    assert abs(times[1] / full - 1) > 2 * abs(times[0] / full - 1)
    assert [one.kernels["method"][0] for one in (with_rule, without)] == ["inferred", "scaled"]
    assert with_rule.coverage.inferred == pytest.approx(100)
    assert with_rule.coverage.modelled == 0
    assert without.coverage.scaled == pytest.approx(100)


def test_the_same_gpu_keeps_the_measured_time():
    run = prepare_run(record(AMPERE, 96).load())
    assert predict_step(run, ["a100-sxm-80gb"]).targets[0].kernels["method"][0] == "measured"
