"""Check new entries of the GPU data base and new predictors; users may run the checks on their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from predictors.errors import AmbiguousGpuError, UnknownGpuError
from predictors.gpu import VENDORS, Gpu
from predictors.gpu_names import resolve_gpu

__all__ = ["check_gpu", "check_predictor"]

PEAK_TOLERANCE = 0.03
"""Largest relative deviation of a printed peak from SMs x clock x rate, because vendors round."""

VECTOR_FLOPS_PER_SM_CLOCK: Mapping[str, Mapping[str, int]] = {
    "6.0": dict(fp64=64, fp32=128, fp16=256),
    "6.1": dict(fp64=8, fp32=256, int8=1024),
    "7.0": dict(fp64=64, fp32=128, fp16=256),
    "7.5": dict(fp64=4, fp32=128, fp16=256),
    "8.0": dict(fp64=64, fp32=128, bf16=256, fp16=512),
    "8.6": dict(fp64=4, fp32=256, bf16=256, fp16=256),
    "8.9": dict(fp64=4, fp32=256, bf16=256, fp16=256),
    "9.0": dict(fp64=128, fp32=256, bf16=512, fp16=512),
    "10.0": dict(fp64=128, fp32=256, bf16=512, fp16=512),
    "10.3": dict(fp64=4, fp32=256, bf16=512, fp16=512),
    "12.0": dict(fp64=4, fp32=256, bf16=256, fp16=256),
    "12.1": dict(fp64=4, fp32=256, bf16=256, fp16=256),
    "8.7": dict(fp32=256),
    "11.0": dict(fp32=256),
    "gfx1100": dict(fp64=16, fp32=512),
    "gfx1151": dict(fp64=16, fp32=512),
    "gfx1200": dict(fp64=8, fp32=512),
    "gfx1201": dict(fp64=8, fp32=512),
    "bmg-g21": dict(fp64=32, fp32=256),
    "pvc": dict(fp64=256, fp32=256),
    "gfx908": dict(fp64=64, fp32=128),
    "gfx90a": dict(fp64=128, fp32=128),
    "gfx942": dict(fp64=128, fp32=256),
    "gfx950": dict(fp64=128, fp32=256),
}
"""FLOPs per clock and SM on the CUDA cores or VALUs.

From the CUDA C++ Programming Guide's table of arithmetic throughput (results per clock x 2 for a multiply-add) and the
AMD CDNA whitepapers' tables of FLOPS per clock and CU; INT8 on 6.1 is DP4A. Of RDNA per work-group processor, both
instructions of a wave counted; of Intel per Xe core (Xe2 and Xe HPC architecture).
"""

TENSOR_FLOPS_PER_SM_CLOCK: Mapping[str, Mapping[str, int]] = {
    "7.0": dict(fp16=1024),
    "7.5": dict(fp16=1024, int8=2048),
    "8.0": dict(fp64=128, tf32=1024, bf16=2048, fp16=2048, int8=4096),
    "8.6": dict(tf32=512, bf16=1024, fp16=1024, int8=2048),
    "8.9": dict(tf32=512, bf16=1024, fp16=1024, fp8=2048, int8=2048),
    "9.0": dict(fp64=256, tf32=2048, bf16=4096, fp16=4096, fp8=8192, int8=8192),
    "10.0": dict(fp64=128, tf32=4096, bf16=8192, fp16=8192, fp8=16384, fp6=16384, fp4=32768, int8=16384),
    "10.3": dict(fp64=4, tf32=4096, bf16=8192, fp16=8192, fp8=16384, fp6=16384, fp4=49152, int8=512),
    "12.0": dict(tf32=512, bf16=1024, fp16=1024, fp8=2048, fp4=4096, int8=2048),
    "12.1": dict(tf32=512, bf16=1024, fp16=1024, fp8=2048, fp4=4096, int8=2048),
    "8.7": dict(tf32=1024, bf16=2048, fp16=2048, int8=4096),
    "11.0": dict(tf32=4096, bf16=8192, fp16=8192, fp8=16384, fp4=32768),
    "gfx1100": dict(bf16=1024, fp16=1024, int8=1024),
    "gfx1151": dict(bf16=1024, fp16=1024, int8=1024),
    "gfx1200": dict(bf16=2048, fp16=2048, fp8=4096, int8=4096),
    "gfx1201": dict(bf16=2048, fp16=2048, fp8=4096, int8=4096),
    "bmg-g21": dict(bf16=2048, fp16=2048, int8=4096),
    "pvc": dict(tf32=2048, bf16=4096, fp16=4096, int8=8192),
    "gfx908": dict(fp32=256, bf16=512, fp16=1024, int8=1024),
    "gfx90a": dict(fp64=256, fp32=256, bf16=1024, fp16=1024, int8=1024),
    "gfx942": dict(fp64=256, fp32=256, tf32=1024, bf16=2048, fp16=2048, fp8=4096, int8=4096),
    "gfx950": dict(fp64=128, fp32=256, bf16=4096, fp16=4096, fp8=8192, fp6=16384, fp4=16384, int8=8192),
}
"""Dense FLOPs per clock and SM on the tensor or matrix cores, at their full rate.

From the vendors' architecture whitepapers (Volta, Turing, A100, GA102, Ada, H100, RTX Blackwell, CDNA 1 to 4). Those of
10.0, 10.3 and 11.0 come from the printed peaks, because no whitepaper gives them; so does that of 8.7. RDNA 3 and 4 by
the cycles of WMMA in their ISA guides, per work-group processor; Intel's XMX per Xe core."""

_HALF_RATE_DTYPES = frozenset({"tf32", "bf16", "fp16", "fp8"})
_LINK_KINDS = frozenset({"nvlink1", "nvlink2", "nvlink3", "nvlink4", "nvlink5", "infinity-fabric", None})
_WARP_SIZES = {"nvidia": 32, "amd": 64, "intel": 32}
_RDNA_WARP_SIZE = 32
_PLAUSIBLE_RANGES: Mapping[str, tuple[float, float]] = {
    "year": (2016, 2035),
    "sms": (8, 512),
    "boost_clock_mhz": (800, 3500),
    "vector_clock_mhz": (800, 3500),
    "max_threads_per_sm": (1024, 4096),
    "registers_per_sm": (2**15, 2**18),
    "shared_memory_per_sm_bytes": (2**15, 2**20),
    "tdp_w": (40, 3000),
    "memory_bytes": (4 * 2**30, 2**40),
    "bandwidth_gbps": (100, 30_000),
    "l2_bytes": (2**20, 2**30),
    "pcie_lanes": (8, 16),
}
_REQUIRED_NUMBERS = (
    *("compute.sms", "compute.boost_clock_mhz", "compute.warp_size", "compute.max_threads_per_sm"),
    *("compute.registers_per_sm", "compute.shared_memory_per_sm_kib", "compute.tdp_w"),
    *("memory.size_gb", "memory.bandwidth_gbps", "memory.l2_mib"),
    *("interconnect.pcie_gen", "interconnect.pcie_lanes"),
)
_RIDGE_RANGE_FLOPS_PER_BYTE = (10, 1000)


def check_gpu(gpu: Gpu) -> None:
    """Check that a GPU's figures are complete, sourced and consistent with each other.

    Every peak must be SMs x clock x rate of its compute capability within 3 %, or have a reason in ``[peak_note]``.

    Args:
        gpu: GPU of the data base or of a user's file.

    Raises:
        AssertionError: Names the GPU and every figure that is wrong.
    """
    problems = [*_check_figures(gpu), *_check_names(gpu), *_check_sources(gpu), *_check_peaks(gpu)]
    if problems:
        raise AssertionError(f"{gpu.slug}: " + "; ".join(problems))


def _check_figures(gpu: Gpu) -> Iterator[str]:
    if gpu.vendor not in VENDORS:
        yield f"vendor {gpu.vendor!r} is none of {', '.join(VENDORS)}"
        return
    warp_size = _RDNA_WARP_SIZE if gpu.architecture.startswith("rdna") else _WARP_SIZES[gpu.vendor]
    if not re.fullmatch(VENDORS[gpu.vendor], gpu.compute_capability):
        yield f"compute_capability {gpu.compute_capability!r} does not look like {gpu.vendor}'s"
    if gpu.warp_size != warp_size:
        yield f"warp_size is {gpu.warp_size}, {gpu.vendor}'s is {warp_size}"
    for key, (low, high) in _PLAUSIBLE_RANGES.items():
        if not low <= getattr(gpu, key) <= high:
            yield f"{key} = {getattr(gpu, key)} is outside {low} to {high}"
    if gpu.last_level_cache_bytes < gpu.l2_bytes:
        yield "last_level_cache_mib is below l2_mib"
    if gpu.link not in _LINK_KINDS or (gpu.link is None) != (gpu.link_gbps is None):
        yield f"link {gpu.link!r} and link_gbps {gpu.link_gbps!r} don't go together"
    ridge = (gpu.peak_flops("fp16") or gpu.peak_flops("fp32") or 0) / gpu.bandwidth_gbps / 1e9
    if not _RIDGE_RANGE_FLOPS_PER_BYTE[0] <= ridge <= _RIDGE_RANGE_FLOPS_PER_BYTE[1]:
        yield f"its ridge is at {ridge:.0f} FLOP/byte: a peak or the bandwidth is off"


def _check_names(gpu: Gpu) -> Iterator[str]:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", gpu.slug):
        yield "the file's name must be lower-case words joined by '-'"
    for alias in gpu.aliases:
        try:
            owner = resolve_gpu(alias).gpu.slug
        except UnknownGpuError:
            continue
        except AmbiguousGpuError as error:
            owner = " or ".join(error.candidates)
        if owner != gpu.slug:
            yield f"alias {alias!r} already means {owner}"


def _check_sources(gpu: Gpu) -> Iterator[str]:
    optional = {
        "compute.vector_clock_mhz": gpu.vector_clock_mhz != gpu.boost_clock_mhz,
        "memory.last_level_cache_mib": gpu.last_level_cache_bytes != gpu.l2_bytes,
        "interconnect.link_gbps": gpu.link_gbps is not None,
        "interconnect.link_gpus": gpu.link_gpus is not None,
    }
    numbers = [*_REQUIRED_NUMBERS, *(key for key, given in optional.items() if given)]
    numbers += [f"vector_tflops.{dtype}" for dtype in gpu.vector_tflops]
    numbers += [f"tensor_tflops.{dtype}" for dtype in gpu.tensor_tflops]
    for key in numbers:
        if not gpu.sources.get(key):
            yield f"{key} has no source"


def _check_peaks(gpu: Gpu) -> Iterator[str]:
    tables = {
        "vector_tflops": (gpu.vector_tflops, VECTOR_FLOPS_PER_SM_CLOCK),
        "tensor_tflops": (gpu.tensor_tflops, TENSOR_FLOPS_PER_SM_CLOCK),
    }
    for section, (printed, rates) in tables.items():
        for dtype, tflops in printed.items():
            yield from _check_peak(gpu, section, dtype, tflops, rates.get(gpu.compute_capability, {}).get(dtype))


def _check_peak(gpu: Gpu, section: str, dtype: str, tflops: float, rate: float | None) -> Iterator[str]:
    """A printed peak must follow from the clock, or have a note; a note that explains nothing is stale."""
    key = f"{section}.{dtype}"
    if rate is None:
        yield f"{key}: no rate is known for compute capability {gpu.compute_capability}"
        return
    if gpu.half_rate_accumulate and section == "tensor_tflops" and dtype in _HALF_RATE_DTYPES:
        rate /= 2
    vector_clock = section == "vector_tflops" or dtype == "fp64"
    expected = gpu.sms * (gpu.vector_clock_mhz if vector_clock else gpu.boost_clock_mhz) * rate / 1e6
    fits = abs(tflops / expected - 1) <= PEAK_TOLERANCE
    if not fits and key not in gpu.peak_notes:
        yield f"{key} = {tflops}, but SMs x clock x {rate:g} is {expected:.4g}; is it the sparse figure?"
    if fits and key in gpu.peak_notes:
        yield f"{key} follows from the clock: its peak_note is stale"


PREDICTION_COLUMNS = ("time_us", "low_us", "high_us", "bound_us", "utilization", "limiter", "method")
"""Columns that a predictor gives for each kernel."""

_TEST_SIZES = tuple(4.0**i for i in range(2, 8))
_TEST_KERNELS: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("m", {"family": "gemm", "dtype": "bf16", "m": 64, "n": 2048, "k": 2048}),
    ("n", {"family": "gemm", "dtype": "fp32", "m": 2048, "n": 64, "k": 2048}),
    ("k", {"family": "gemm", "dtype": "fp8", "m": 2048, "n": 2048, "k": 64}),
    ("kv_len", {"family": "attention", "dtype": "bf16", "batch": 8, "heads": 32, "q_len": 1, "head_dim": 128}),
    ("q_len", {"family": "attention", "dtype": "bf16", "heads": 32, "head_dim": 128, "kv_len": 16384, "causal": True}),
    ("tokens", {"family": "moe", "dtype": "bf16", "hidden": 2048, "inter": 768, "topk": 8, "experts": 128}),
    ("bytes", {"family": "elementwise", "dtype": "bf16"}),
    ("bytes", {"family": "norm", "dtype": "fp32", "rows": 4096, "cols": 4096}),
)


def check_predictor(predict: Callable[..., pl.DataFrame], gpus: Sequence[str]) -> None:
    """Check on every GPU of a list what must hold for any predictor, however it was fitted.

    - Times are finite, inside their interval and not below their bound.
    - A kernel of four times the size takes no less time (with 20 % tolerance where the size hardly matters).
    - On the GPU of a measurement, the prediction equals the measurement.
    - Rows stay in order and do not depend on each other.

    Args:
        predict: Called as ``predictors.predict``.
        gpus: Names of GPUs.

    Raises:
        AssertionError: Names the GPU and the kernel of everything that is wrong.
    """
    problems = [f"{gpu}: {problem}" for gpu in gpus for problem in _check_predictions(predict, gpu)]
    if problems:
        raise AssertionError("; ".join(problems))


def _check_predictions(predict: Callable[..., pl.DataFrame], gpu: str) -> Iterator[str]:
    for name, kernel in _TEST_KERNELS:
        label = f"{kernel['family']} over {name}"
        rows = pl.DataFrame([{**kernel, name: size} for size in _TEST_SIZES])
        result = predict(rows, gpu)
        if missing := [column for column in PREDICTION_COLUMNS if column not in result.columns]:
            yield f"{label}: no column {', '.join(missing)}"
            continue
        time, low, high, bound = (result[column].to_numpy() for column in PREDICTION_COLUMNS[:4])
        if not (result["time_us"].is_finite().all() and (bound > 0).all()):
            yield f"{label}: a time is not finite or a bound not positive"
        if not ((time >= bound).all() and (low <= time).all() and (time <= high).all()):
            yield f"{label}: a time is under its bound or outside its interval"
        if (time[1:] < 0.8 * time[:-1]).any():
            yield f"{label}: four times the size takes less"
        if not predict(rows.reverse(), gpu).reverse().equals(result):
            yield f"{label}: the order of the rows matters"
        measured = rows.with_columns(measured_us=pl.Series(time * 1.37))
        if not predict(measured, gpu, source_gpu=gpu)["time_us"].equals(measured["measured_us"].alias("time_us")):
            yield f"{label}: the GPU of the measurement does not give it back"
