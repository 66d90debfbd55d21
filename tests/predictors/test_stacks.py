"""Attention whose kernels are known runs where they were made for, and is predicted by what was measured of them."""

import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.columns import prepare
from predictors.machine import machine
from predictors.training.datasets import load

PREFILL = {"family": "attention", "dtype": "bf16", "batch": 4, "heads": 32, "q_len": 4096, "kv_len": 4096}
PREFILL |= {"head_dim": 128, "causal": True}


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
    rows = prepare(pl.DataFrame([PREFILL | {"framework": stack}]), machine(load_gpu(gpu)))
    assert rows["framework"].to_list() == [there]


def test_a_known_stack_has_its_own_time_and_a_narrower_interval():
    rows = pl.DataFrame([PREFILL, PREFILL | {"framework": "fa2"}, PREFILL | {"framework": "triton"}])
    result = predict(rows, "l40s")
    assert result["time_us"].n_unique() == 3
    nameless, fa2, _ = (result["high_us"] / result["time_us"]).to_list()
    assert fa2 < nameless


def test_measurements_are_shown_under_their_stack_too(tmp_path):
    columns = {
        "system": "h100_sxm", "framework": "vllm", "version": "1", "attn_dtype": "bfloat16",
        "kv_cache_dtype": "bfloat16", "batch_size": 1, "isl": 512, "step": 0, "num_heads": 8,
        "num_key_value_heads": 8, "head_dim": 128, "window_size": 0,
    }  # fmt: skip
    sources = {"vllm_flash_attn_fa3": 50.0, "vllm_triton_attn": 90.0, "who_knows": 70.0}
    rows = [columns | {"kernel_source": source, "latency_us": us} for source, us in sources.items()]
    (tmp_path / "aiconfigurator").mkdir()
    pl.DataFrame(rows).write_parquet(tmp_path / "aiconfigurator/attention_context.parquet")
    times = dict(load(tmp_path).select("framework", "latency_us").iter_rows())
    assert times == {"vllm": 70.0, "fa3": 50.0, "triton": 90.0}
