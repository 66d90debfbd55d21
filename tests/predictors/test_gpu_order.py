"""A GPU at least as good in every figure of its datasheet is never slower: all pairs of GPUs, all families."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from predictors import Batch, list_gpus, load_gpu, predict
from predictors.gpu_order import ENGINE_LAWS, is_no_worse, list_better, list_worse_siblings
from predictors.hardware import derive_hardware, get_architecture
from tests.conftest import SAMPLES
from tracekit.parallelism.relayout import add_measured_times
from tracekit.run import prepare_run

GPUS = [load_gpu(slug) for slug in list_gpus()]
NO_WORSE = np.array([[one != other and is_no_worse(one, other) for other in GPUS] for one in GPUS])
ALIKE = np.equal.outer(*[np.array([get_architecture(gpu.compute_capability) for gpu in GPUS])] * 2)
ROUNDING = 1e-5
"""Features are rounded to 32 bits, and several GPUs evaluated at once round otherwise than one."""
SAMPLE_NAMES = ("synthetic_transformer_train", "synthetic_transformer_inference")
STREAMS = ("elementwise", "softmax", "norm", "copy", "reduction", "embedding", "optimizer", "memset", "memcpy")


def draw_kernels(count: int = 6) -> pl.DataFrame:
    """Draw kernels of every family in every format, of sizes from a few microseconds of latency to full GPUs."""
    draw, rows = np.random.default_rng(0), []
    for dtype in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp8_block", "nvfp4"):
        for size in np.linspace(3, 13, count):
            m, n, k = (int(2 ** (size + shift)) for shift in draw.uniform(-2, 2, 3))
            rows += [
                {"family": "gemm", "dtype": dtype, "m": m, "n": n, "k": k},
                {"family": "gemm", "dtype": dtype, "m": 1 + m % 48, "n": 64 * n, "k": 16 * k, "framework": "vllm"},
                {"family": "conv", "dtype": dtype, "m": 49 * m, "n": n, "k": 9 * k, "channels": k},
                {"family": "attention", "dtype": dtype, "heads": 16, "q_len": m, "kv_len": m, "head_dim": 64,
                 "batch": 1 + n // 64, "causal": bool(m % 2), "paged": False, "framework": "fa2"},
                {"family": "attention", "dtype": dtype, "heads": 32, "kv_heads": 8, "q_len": 1 + m % 2 * m,
                 "kv_len": 4 * m, "head_dim": 128, "batch": 1 + n // 64, "causal": True},
                {"family": "moe", "dtype": dtype, "tokens": m, "hidden": 2048, "inter": 768, "topk": 4, "experts": 64},
            ]  # fmt: skip
    for family in STREAMS:
        for size in np.linspace(8, 28, 2 * count):
            cols = int(2 ** draw.uniform(5, 14))
            work = {"bytes": float(2**size), "rows": max(int(2 ** (size - 2)) // cols, 1), "cols": cols}
            kernel = {"family": family, "dtype": ("fp32", "bf16")[cols % 2], **work}
            rows += [kernel, kernel | {"blocks": 1 + cols % 300, "threads_per_block": 128, "direction": "backward"}]
    return pl.DataFrame(rows, infer_schema_length=None)


def find_slower(times: np.ndarray, ordered: np.ndarray, rounding: float = ROUNDING) -> list[str]:
    """Return the pairs of GPUs of which the better one is slower in some column, where columns are ordered.

    Args:
        times: (GPUs, columns).
        ordered: Whether columns are ordered between two GPUs, (GPUs, columns) for the worse GPU of a pair.
        rounding: Relative tolerance.
    """
    found = []
    for better, worse in np.argwhere(NO_WORSE):
        slower = ordered[better, worse] & (times[better] > times[worse] * (1 + rounding))
        found += [f"{GPUS[better].slug} {GPUS[worse].slug} column {i}" for i in np.flatnonzero(slower)[:1]]
    return found


def test_all_pairs_in_all_families_by_the_model():
    kernels = draw_kernels()
    batch = Batch(kernels)
    times = np.stack([batch.predict_time_us(gpu).to_numpy() for gpu in GPUS])
    engine = np.stack([batch.get_work(gpu)["law"].is_in(ENGINE_LAWS).to_numpy() for gpu in GPUS])
    # Engines' kernels are ordered within an architecture.
    ordered = ~(engine[:, None] | engine) | ALIKE[..., None]
    assert NO_WORSE.sum() > 2000
    assert ordered[NO_WORSE].mean() > 0.8
    assert not find_slower(times, ordered)


@cache
def load_sample(name: str) -> pl.DataFrame:
    return add_measured_times(prepare_run(tk.load(SAMPLES / f"{name}.json.gz")).program)


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_all_pairs_from_a_trace(name: str):
    """With the trace's own GPU among them, whose measured times bound those of better and of worse ones."""
    kernels = load_sample(name).unique("name", keep="first", maintain_order=True)
    batch = Batch(kernels, source_gpu="a100-sxm-80gb")
    times = np.stack([batch.predict_time_us(gpu).to_numpy() for gpu in GPUS])
    assert not find_slower(times, np.ones((len(GPUS), len(GPUS), kernels.height), dtype=np.bool_))
    assert (times[list_gpus().index("a100-sxm-80gb")] == kernels["measured_us"].to_numpy()).all()


@pytest.mark.parametrize(("source", "slowness"), [("rtx-2070", 0.8), ("h100-pcie", 2.5), ("v100-sxm-32gb", 1.0)])
def test_all_pairs_from_kernels_that_were_faster_or_slower_than_the_model_says(source: str, slowness: float):
    kernels = draw_kernels(2).filter(pl.col("dtype").is_in(["fp32", "bf16"]))
    spread = np.random.default_rng(1).uniform(0.8, 1.25, kernels.height)
    # Shorter times count as half a microsecond everywhere else.
    times_us = (predict(kernels, source)["time_us"] * slowness * spread).clip(0.5)
    measured = kernels.with_columns(measured_us=times_us)
    batch = Batch(measured, source_gpu=source)
    nvidia = [place for place, gpu in enumerate(GPUS) if gpu.vendor == "nvidia"]
    some = [*nvidia[::3], list_gpus().index(source)]
    times = np.full((len(GPUS), kernels.height), np.nan)
    times[some] = [batch.predict_time_us(GPUS[place]).to_numpy() for place in some]
    engine = np.stack([batch.get_work(gpu)["law"].is_in(ENGINE_LAWS).to_numpy() for gpu in GPUS])
    assert not find_slower(times, ~(engine[:, None] | engine) | ALIKE[..., None])


@pytest.mark.parametrize("worse", ["a100-pcie-80gb", "rtx-3070", "l4"])
def test_a_calibrated_gpu_bounds_its_better_siblings(worse: str):
    kernels = draw_kernels(4).filter(pl.col("dtype").is_in(["fp32", "bf16"]))
    fast = kernels.with_columns(measured_us=predict(kernels, worse)["time_us"] * 0.5)
    calibrations = {load_gpu(worse): fast}
    there = predict(kernels, worse, calibrations=calibrations)["time_us"]
    siblings = [slug for slug in list_better(load_gpu(worse)) if is_sibling(slug, worse)]
    assert siblings
    for better in siblings:
        assert (predict(kernels, better, calibrations=calibrations)["time_us"] <= there * (1 + ROUNDING)).all(), better


def is_sibling(one: str, other: str) -> bool:
    return derive_hardware(load_gpu(one)).architecture == derive_hardware(load_gpu(other)).architecture


def test_the_figures_that_are_scanned_are_those_of_the_files():
    for gpu in GPUS:
        assert set(list_better(gpu)) == {other.slug for other in GPUS if other != gpu and is_no_worse(other, gpu)}
    ampere = derive_hardware(load_gpu("a100-sxm-80gb")).architecture
    found = list_worse_siblings(load_gpu("a100-sxm-80gb"), ampere)
    assert {"a100-pcie-80gb", "a100-sxm-40gb", "a800-sxm-80gb"} <= set(found)
    assert all(is_sibling(slug, "a100-sxm-80gb") for slug in found)


def test_no_figures_compare_two_vendors():
    assert not is_no_worse(load_gpu("mi355x"), load_gpu("t4"))
