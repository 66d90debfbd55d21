"""Attention whose kernels are known runs where they were made for, and is predicted by what was measured of them."""

import polars as pl
import pytest

from predictors import Gpu, load_gpu, predict
from predictors.columns import prepare_kernels
from predictors.hardware import derive_hardware
from predictors.training.datasets import load_datasets

PREFILL = {"family": "attention", "dtype": "bf16", "batch": 4, "heads": 32, "q_len": 4096, "kv_len": 4096}
PREFILL |= {"head_dim": 128, "causal": True}
TRAINING = PREFILL | {"paged": False}


@pytest.mark.parametrize(
    ("stack", "gpu", "there"),
    [
        ("fa2", "h100-sxm", "fa2"),
        ("fa3", "h200-sxm", "fa3"),
        ("fa3", "a100-sxm-80gb", "fa2"),
        ("fa3", "b200", None),
        ("trtllm-gen", "b200", "trtllm-gen"),
        ("trtllm-gen", "l40s", None),
        ("vllm", "l40s", "vllm"),
    ],
)
def test_a_stack_on_another_gpu(stack: str, gpu: str, there: str | None):
    rows = prepare_kernels(pl.DataFrame([PREFILL | {"framework": stack}]), derive_hardware(load_gpu(gpu)))
    assert rows["framework"].to_list() == [there]


@pytest.mark.parametrize(
    ("stack", "gpu", "there"),
    [
        ("cudnn", "h100-sxm", "cudnn"),
        ("cudnn", "mi300x", "aotriton"),
        ("fa2", "mi300x", "aotriton"),
        ("aotriton", "h100-sxm", "fa2"),
        ("memeff", "mi300x", "aotriton"),
        ("fa2", "t4", "memeff"),
        ("fa3", "v100-sxm-32gb", "memeff"),
        ("memeff", "p100-sxm", "memeff"),
        ("ck", "mi325x", "ck"),
    ],
)
def test_what_works_on_tensors_on_another_gpu(stack: str, gpu: str, there: str | None):
    rows = prepare_kernels(pl.DataFrame([TRAINING | {"framework": stack}]), derive_hardware(load_gpu(gpu)))
    assert rows.select("law", "framework").row(0) == ("sequence", there)


@pytest.mark.parametrize(
    ("library", "gpu", "there"),
    [
        ("cublas", "mi300x", "hipblaslt"),
        ("hipblaslt", "h100-sxm", "cublas"),
        ("cublas", "v100-sxm-32gb", "cublas"),
        ("cublas", "arc-b580", None),
        ("flydsl", "h100-sxm", None),
        ("ck", "mi355x", "ck"),
    ],
)
def test_whose_products_run_on_another_vendors_gpu(library: str, gpu: str, there: str | None):
    product = {"family": "gemm", "dtype": "bf16", "m": 64, "n": 4096, "k": 4096, "framework": library}
    assert prepare_kernels(pl.DataFrame([product]), derive_hardware(load_gpu(gpu)))["framework"].to_list() == [there]


def test_a_law_knows_no_stack_that_it_was_not_fitted_to():
    rows = pl.DataFrame([PREFILL | {"framework": "cudnn"}, TRAINING | {"framework": "flashinfer"}])
    assert prepare_kernels(rows, derive_hardware(load_gpu("h100-sxm")))["framework"].to_list() == [None, None]


def tflops(gpu: str, stack: str | None, *, backward: bool = False, **columns: object) -> float:
    row = TRAINING | columns | {"framework": stack, "direction": "backward" if backward else "forward"}
    pairs = row["batch"] * row["heads"] * row["q_len"] ** 2 * (0.5 if row["causal"] else 1.0)
    work = 4 * pairs * row["head_dim"] * (2.5 if backward else 1.0)
    return work / predict(pl.DataFrame([row]), gpu)["time_us"][0] / 1e6


def test_where_flash_attention_3_does_not_run_a_job_has_its_successor_and_an_engine_a_choice():
    rows = pl.DataFrame([PREFILL, PREFILL | {"paged": True}, TRAINING]).with_columns(framework=pl.lit("fa3"))
    assert prepare_kernels(rows, derive_hardware(load_gpu("b200")))["framework"].to_list() == [None, None, "fa4"]


def test_kernels_made_for_older_matrix_units_gain_nothing_from_newer_ones():
    per_clock = {}
    for gpu in ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200"):
        there = derive_hardware(load_gpu(gpu))
        per_clock[gpu] = tflops(gpu, "fa2") * 1e6 / there.sms / there.clock_mhz
    assert all(rate < 2048 for rate in per_clock.values())
    assert max(per_clock.values()) < 1.25 * min(per_clock.values())
    assert tflops("h100-sxm", "fa3") > 1.4 * tflops("h100-sxm", "fa2")
    assert tflops("b200", "fa4") > 2 * tflops("b200", "fa2")


@pytest.mark.parametrize(
    ("gpu", "stack", "backward", "columns", "published"),
    [
        ("h100-sxm", "fa2", False, {"batch": 1, "q_len": 16384, "kv_len": 16384, "heads": 16}, 335),
        ("h100-sxm", "fa3", False, {"batch": 1, "q_len": 16384, "kv_len": 16384, "heads": 16}, 616),
        ("h100-sxm", "cudnn", False, {"batch": 4, "heads": 16, "causal": False}, 609),
        ("h100-sxm", "fa2", True, {"batch": 4, "heads": 16, "causal": False}, 310),
        ("b200", "fa2", False, {"batch": 2, "q_len": 8192, "kv_len": 8192, "head_dim": 64, "causal": False}, 343),
        ("b200", "fa2", True, {"batch": 2, "q_len": 8192, "kv_len": 8192, "head_dim": 64, "causal": False}, 329),
    ],
)
def test_published_rates_of_long_sequences(gpu: str, stack: str, backward: bool, columns: dict, published: float):
    assert tflops(gpu, stack, backward=backward, **columns) == pytest.approx(published, rel=0.2)


def test_what_is_outside_of_a_window_takes_no_time():
    windowed = {"causal": True, "window": 128, "head_dim": 64}
    rows = [TRAINING | windowed | {"framework": "fa3", "q_len": n, "kv_len": n} for n in (16384, 32768)]
    short, long = predict(pl.DataFrame(rows), "h100-sxm")["time_us"]
    assert long == pytest.approx(2 * short, rel=0.1)


def test_a_backward_pass_is_never_shorter_than_what_it_moves():
    row = TRAINING | {"framework": "fa3", "direction": "backward", "q_len": 2048, "kv_len": 2048, "window": 128}
    moved = 14 * row["batch"] * row["heads"] * 2048 * row["head_dim"]
    assert predict(pl.DataFrame([row]), "h100-sxm")["time_us"][0] > moved / 3.35e6


def test_decoding_waits_for_memory_whatever_the_units():
    decode = PREFILL | {"q_len": 1, "batch": 64, "framework": "fa2"}
    assert not prepare_kernels(pl.DataFrame([decode]), derive_hardware(load_gpu("h100-sxm")))["on_mma"].any()


def slower(gpu: str) -> dict[Gpu, pl.DataFrame]:
    """A calibration: FlashAttention 2 takes 1.5 times as long as predicted."""
    rows = [TRAINING | {"framework": "fa2", "q_len": n, "kv_len": n} for n in (512, 1024, 2048, 4096, 8192)]
    return {
        load_gpu(gpu): pl.DataFrame(rows).with_columns(measured_us=1.5 * predict(pl.DataFrame(rows), gpu)["time_us"])
    }


def test_what_is_measured_of_one_stack_leaves_the_others():
    both = pl.DataFrame([TRAINING | {"framework": stack} for stack in ("fa2", "fa3")])
    before, after = (predict(both, "h100-sxm", calibrations=told) for told in ({}, slower("h100-sxm")))
    fa2, fa3 = after["time_us"] / before["time_us"]
    assert fa2 == pytest.approx(1.5, rel=0.1)
    assert fa3 == 1.0
    assert (after["high_us"] / after["time_us"]).to_list() == pytest.approx(
        before["high_us"] / before["time_us"], rel=0.03
    )
    carried = both.with_columns(measured_us=300.0)
    before, after = (
        predict(carried, "h100-sxm", source_gpu="b200", calibrations=told)["time_us"]
        for told in ({}, slower("h100-sxm"))
    )
    assert after[0] > 1.2 * before[0]
    assert after[1] == before[1]


def test_a_gpu_is_not_quicker_than_a_calibrated_one_that_has_more_for_older_units_too():
    """An H200 has all of an H100 and more: where FlashAttention 2 is slower there, it is no faster on the H100."""
    row = pl.DataFrame([TRAINING | {"framework": "fa2"}])
    h100, calibrated = (predict(row, "h100-sxm", calibrations=told)["time_us"][0] for told in ({}, slower("h200-sxm")))
    assert calibrated > 1.3 * h100


def test_attention_is_the_surer_the_more_was_published_of_the_gpu():
    row = pl.DataFrame([TRAINING | {"framework": "fa2"}])
    factors = [
        (rows["high_us"] / rows["time_us"])[0]
        for gpu in ("h100-sxm", "rtx-a6000", "l40s", "mi300x")
        for rows in [predict(row, gpu)]
    ]
    assert factors == sorted(factors)
    assert factors[0] < 1.5 < 2 < factors[-1]


def test_gemms_alone_tell_nothing_of_how_sure_attention_is():
    gemms = pl.DataFrame([{"family": "gemm", "dtype": "bf16", "m": m, "n": 4096, "k": 4096} for m in (512, 4096)])
    told = {load_gpu("h100-sxm"): gemms.with_columns(measured_us=predict(gemms, "h100-sxm")["time_us"])}
    both = pl.DataFrame([TRAINING | {"framework": stack} for stack in ("fa2", "fa3")])
    alone, told_of_gemms = (predict(both, "h100-sxm", calibrations=known) for known in ({}, told))
    assert (told_of_gemms["high_us"] / told_of_gemms["time_us"]).to_list() == pytest.approx(
        (alone["high_us"] / alone["time_us"]).to_list()
    )


def test_what_older_kernels_take_beyond_the_law_goes_along_to_later_units():
    """Between an A100 and an H100 FlashAttention 2 stays the same kernel, FlashAttention 3 doesn't."""
    there = pl.DataFrame([TRAINING | {"framework": "fa2"}])
    slow = there.with_columns(measured_us=2 * predict(there, "a100-sxm-80gb")["time_us"])
    carried = predict(slow, "h100-sxm", source_gpu="a100-sxm-80gb")["time_us"][0]
    assert carried > 1.25 * predict(there, "h100-sxm")["time_us"][0]
    newer = slow.with_columns(framework=pl.lit("fa3"))
    carried = predict(newer, "h100-sxm", source_gpu="a100-sxm-80gb")["time_us"][0]
    assert carried < 1.25 * predict(newer.drop("measured_us"), "h100-sxm")["time_us"][0]


def test_a_known_stack_has_its_own_time_and_a_narrower_interval():
    rows = pl.DataFrame([PREFILL, PREFILL | {"framework": "fa2"}, PREFILL | {"framework": "triton"}])
    result = predict(rows, "l40s")
    assert result["time_us"].n_unique() == 3
    nameless, fa2, _ = (result["high_us"] / result["time_us"]).to_list()
    assert fa2 < nameless


def test_a_measurement_is_of_its_library_or_else_of_its_engine(tmp_path):
    columns = {
        "system": "h100_sxm", "framework": "vllm", "version": "0.19.0", "attn_dtype": "bfloat16",
        "kv_cache_dtype": "bfloat16", "batch_size": 1, "isl": 512, "step": 0, "num_heads": 8,
        "num_key_value_heads": 8, "head_dim": 128, "window_size": 0,
    }  # fmt: skip
    sources = {"vllm_flash_attn_fa3": 50.0, "vllm_triton_attn": 90.0, "who_knows": 70.0}
    rows = [columns | {"kernel_source": source, "latency_us": us} for source, us in sources.items()]
    (tmp_path / "aiconfigurator").mkdir()
    pl.DataFrame(rows).write_parquet(tmp_path / "aiconfigurator/attention_context.parquet")
    found = load_datasets(tmp_path)
    assert dict(found.select("framework", "latency_us").iter_rows()) == {"vllm": 70.0, "fa3": 50.0, "triton": 90.0}
    assert set(found.select("engine", "release").iter_rows()) == {("vllm", 1900.0)}


def test_vllms_own_flash_attention_is_the_one_that_runs_on_the_gpu(tmp_path):
    columns = {
        "framework": "vllm", "version": "0.19.0", "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16",
        "batch_size": 1, "isl": 512, "step": 0, "num_heads": 8, "num_key_value_heads": 8, "head_dim": 128,
        "window_size": 0, "kernel_source": "vllm_flash_attn", "latency_us": 50.0,
    }  # fmt: skip
    (tmp_path / "aiconfigurator").mkdir()
    table = pl.DataFrame([columns | {"system": system} for system in ("h100_sxm", "l40s")])
    table.write_parquet(tmp_path / "aiconfigurator/attention_context.parquet")
    assert dict(load_datasets(tmp_path).select("gpu", "framework").iter_rows()) == {"h100-sxm": "fa3", "l40s": "fa2"}


def test_older_instructions_take_wider_formats_at_a_part_of_their_rate():
    on_mma = derive_hardware(load_gpu("h100-sxm")).on_mma
    rate = on_mma.get_tflops("bf16")
    assert on_mma.get_tflops("tf32") == pytest.approx(rate / 2)
    assert on_mma.get_tflops("3xtf32") == pytest.approx(rate / 6)
    assert on_mma.get_tflops("fp32") < rate / 6


DECODE = {"family": "attention", "dtype": "bf16", "batch": 1, "heads": 16, "q_len": 1, "kv_len": 65536}
DECODE |= {"head_dim": 128, "causal": False, "paged": True, "framework": "fa2"}


@pytest.mark.parametrize(
    ("changes", "is_unsplit"),
    [
        ({"kv_heads": 16}, True),
        ({"kv_heads": 16, "framework": "vllm"}, True),
        ({"kv_heads": 2}, False),
        ({"kv_heads": 2, "window": 65536}, True),
        ({"kv_heads": 16, "paged": False}, False),
        ({"kv_heads": 16, "framework": "flashinfer"}, False),
        ({"kv_heads": 16, "framework": "vllm", "kv_dtype": "fp8"}, False),
    ],
)
def test_flash_attention_2_reads_all_keys_of_a_head_in_one_block(changes: dict[str, object], is_unsplit: bool):
    """65,536 keys and values of 256 bytes each at 27 GB/s: 1.24 ms; vLLM's on an RTX PRO 6000 take 1.3 ms."""
    time_us = predict(pl.DataFrame([DECODE | changes]), "rtx-pro-6000-server")["time_us"][0]
    assert (time_us >= 65536 * 512 / 27e3) == is_unsplit


def test_a_hopper_runs_vllms_decoding_with_split_keys():
    assert predict(pl.DataFrame([DECODE | {"kv_heads": 16, "framework": "vllm"}]), "h100-sxm")["time_us"][0] < 600
