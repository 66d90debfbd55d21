"""GPUs that nobody measured but that run a measured one's kernels: memory times follow the memory, nothing jumps."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.hardware import derive_hardware
from predictors.weights_file import load_weights

SIBLINGS = [
    ("h100-sxm", "gh200-96gb"), ("h200-sxm", "gh200-144gb"), ("h200-sxm", "h200-nvl"), ("l40s", "rtx-6000-ada"),
    ("a100-sxm-80gb", "a100-sxm-40gb"), ("a100-sxm-80gb", "a100-pcie-80gb"), ("mi300x", "mi325x"),
]  # fmt: skip
PRODUCT = {"family": "gemm", "dtype": "bf16", "framework": "vllm"}
LARGE = PRODUCT | {"m": 8192, "n": 8192, "k": 8192}
NARROW = PRODUCT | {"m": 16, "n": 16384, "k": 16384}
DECODE = {
    "family": "attention", "dtype": "bf16", "framework": "vllm", "batch": 64, "heads": 32, "kv_heads": 8, "q_len": 1,
    "kv_len": 8192, "head_dim": 128,
}  # fmt: skip
EXPERTS = {
    "family": "moe", "dtype": "bf16", "framework": "vllm", "tokens": 64, "hidden": 4096, "inter": 14336, "topk": 2,
    "experts": 8,
}  # fmt: skip


def some_kernels(count: int = 100) -> list[dict[str, object]]:
    """Kernels of the families that were measured in bf16, of any shape."""
    draw = np.random.default_rng(0)
    size, few = (2 ** draw.uniform(0, top, (count, 4)) // 1 for top in (15, 7))
    products = [
        {"family": "gemm", "m": m, "n": n, "k": k, "batch": b} for (m, n, k, _), (b, *_) in zip(size, few, strict=True)
    ]
    attention = [
        {"family": "attention", "heads": heads, "batch": batch, "q_len": q, "kv_len": q, "head_dim": 64, "causal": True}
        for (q, *_), (heads, batch, *_) in zip(size, few, strict=True)
    ]
    experts = [
        {"family": "moe", "tokens": tokens, "hidden": hidden, "inter": inter, "topk": 2, "experts": 8 * groups}
        for (tokens, hidden, inter, _), (groups, *_) in zip(size, few, strict=True)
    ]
    return [row | {"dtype": "bf16"} for row in (*products, *attention, *experts)]


def ratio(rows: list[dict[str, object]], gpu: str, sibling: str) -> np.ndarray:
    """Times on the sibling over those on the GPU that was measured."""
    kernels = pl.DataFrame(rows, infer_schema_length=None)
    return (predict(kernels, sibling)["time_us"] / predict(kernels, gpu)["time_us"]).to_numpy()


@pytest.mark.parametrize("kernel", [NARROW, DECODE, EXPERTS], ids=["product", "decode", "experts"])
@pytest.mark.parametrize(("gpu", "sibling"), [("h100-sxm", "h200-sxm"), ("a100-sxm-80gb", "a100-sxm-40gb")])
def test_what_streams_follows_the_memory(gpu: str, sibling: str, kernel: dict[str, object]):
    memory = load_gpu(gpu).bandwidth_gbps / load_gpu(sibling).bandwidth_gbps
    assert ratio([kernel], gpu, sibling)[0] == pytest.approx(memory, rel=0.1)


@pytest.mark.parametrize("gpu", ["h200-sxm", "a100-sxm-40gb"])
def test_what_computes_is_left_alone_by_the_memory(gpu: str):
    base = {"h200-sxm": "h100-sxm", "a100-sxm-40gb": "a100-sxm-80gb"}[gpu]
    assert ratio([LARGE], base, gpu)[0] == pytest.approx(1.0, abs=0.05)


def test_a_smaller_power_budget_lowers_the_clock_of_products():
    more, less = ratio([LARGE], "b200", "b300")[0], ratio([LARGE], "a100-sxm-80gb", "a100-pcie-80gb")[0]
    assert 0.9 < more < 1.0  # 1100 W against 1000 W
    assert 1.05 < less < 1.25  # 300 W against 400 W


def test_blackwell_ultra_takes_exponentials_twice_as_fast():
    """Of narrow heads, whose products are short, they are most of the time; decoding streams its cache."""
    prefill = DECODE | {"causal": True, "q_len": 8192, "batch": 4}
    narrow, wide, decode = ratio([prefill | {"head_dim": 64}, prefill, DECODE], "b200", "b300")
    assert 0.55 < narrow < wide < 0.9
    assert decode > 0.9


@pytest.mark.parametrize(("source", "most"), [("b200", 0.8), ("gb200", 0.9)])
def test_measured_attention_gains_from_them_as_well(source: str, most: float):
    """Even from a GB200, which has more of everything else than a B300."""
    prefill = pl.DataFrame([DECODE | {"causal": True, "q_len": 8192, "batch": 4, "head_dim": 64}])
    measured = prefill.with_columns(measured_us=predict(prefill, source)["time_us"])
    assert predict(measured, "b300", source_gpu=source)["time_us"][0] < most * measured["measured_us"][0]


@pytest.mark.parametrize(("gpu", "sibling"), [("l40s", "l40"), ("h100-sxm", "h200-nvl")])
def test_attention_waits_for_slower_matrix_units(gpu: str, sibling: str):
    slower = load_gpu(gpu).peak_flops("bf16") / load_gpu(sibling).peak_flops("bf16")
    assert ratio([DECODE | {"causal": True, "q_len": 8192, "batch": 4}], gpu, sibling)[0] == pytest.approx(slower, 0.01)


def test_siblings_lack_what_the_architecture_lacks_but_for_those_whose_rate_is_known():
    products = load_weights().get_law("gemm half")
    lacking = products.architecture["8.9"]["compute"]
    offsets = {
        gpu: products.get_offset(derive_hardware(load_gpu(gpu)))["compute"] for gpu in ("l40s", "rtx-4080", "rtx-4090")
    }
    assert offsets["l40s"] < lacking == offsets["rtx-4080"] < 0.05
    assert offsets["rtx-4090"] == products.rated["rtx-4090"]["compute"]


@pytest.mark.parametrize(("gpu", "sibling"), SIBLINGS)
def test_none_gains_more_than_the_resource_that_differs_most(gpu: str, sibling: str):
    base, target = load_gpu(gpu), load_gpu(sibling)
    gains = [1.0, target.tdp_w / base.tdp_w, target.bandwidth_gbps / base.bandwidth_gbps]
    gains += [target.vector_tflops["fp32"] / base.vector_tflops["fp32"]]
    gains += [target.peak_flops("bf16") / base.peak_flops("bf16")]
    kernels = some_kernels()
    exponentials = derive_hardware(target).exponentials_per_clock / derive_hardware(base).exponentials_per_clock
    most = np.array([max(*gains, exponentials * (kernel["family"] == "attention")) for kernel in kernels])
    found = ratio(kernels, gpu, sibling)
    # Single kernels are put in order with GPUs of other architectures, by up to four percent.
    assert (found > 0.96 / most).all()
    assert (found < 1.02 / min(gains)).all()


@pytest.mark.parametrize(("gpu", "sibling"), SIBLINGS)
def test_the_gain_does_not_jump_with_the_size(gpu: str, sibling: str):
    sizes = [2**i for i in range(4, 15)]
    rows = [PRODUCT | {"m": size, "n": 8192, "k": 8192} for size in sizes]
    steps = np.diff(np.log(ratio(rows, gpu, sibling)))
    assert np.abs(steps).max() < 0.2
