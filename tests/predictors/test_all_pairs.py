"""Physics of times carried without a shape, over all pairs of GPUs, families and dtypes."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest

from predictors import Batch, list_gpus, load_gpu
from predictors.hardware import Hardware, derive_hardware, find_supported_dtype
from predictors.kernels import DTYPE_BYTES, REQUIRED_COLUMNS, complete_columns
from predictors.transfer import compare_gpus
from predictors.without_shapes import MeasuredTimes

pytestmark = pytest.mark.heavy

GPUS = [derive_hardware(load_gpu(slug)) for slug in list_gpus()]
DTYPES = tuple(DTYPE_BYTES)
FAMILIES = tuple(family for family in REQUIRED_COLUMNS if family != "collective")
ROUNDING = 1 + 1e-9
KERNELS = pl.DataFrame(
    [
        {"family": family, "dtype": dtype, "blocks": blocks, "measured_us": us}
        for family, dtype, (blocks, us) in product(
            FAMILIES, DTYPES, [(None, 1e4), (4, 500.0), (60, 90.0), (112, 3000.0), (1e5, 700.0), (1, 2.0)]
        )
        if family != "conv" or dtype not in ("fp32", "tf32")
    ],
    infer_schema_length=None,
)
"""From a single block to a full GPU, from a fixed time to a long one; fp32 convolutions run in TF32 on some GPUs, TF32
ones in fp32 on AMD's."""
TABLE, MEASURED_US = complete_columns(KERNELS), KERNELS["measured_us"].to_numpy()


def list_peaks(gpu: Hardware) -> list[float]:
    """Peaks of a whole GPU: rates in what it runs each dtype in, of vector units, memory, cache, SMs by their clock."""
    rates = [gpu.get_tflops(dtype) for dtype in DTYPES]
    return [*rates, gpu.vector_tflops, gpu.bandwidth_gbps, gpu.cache_gbps, gpu.cache_bytes, gpu.sms * gpu.clock_mhz]


PEAKS = np.array([list_peaks(gpu) for gpu in GPUS])
DTYPE = np.array([DTYPES.index(dtype) for dtype in KERNELS["dtype"]])
FP64 = DTYPES.index("fp64")
SIZES = np.array([[DTYPE_BYTES[find_supported_dtype(dtype, gpu.gpu)] for dtype in DTYPES] for gpu in GPUS])
IN_FP64 = DTYPE == FP64


def compare_peaks(source: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for which GPUs and kernels all peaks are lower than the source's, and for which higher.

    Export limits cut the rate in fp64, which is only a peak of kernels in it.
    """
    lower, higher = (sign * PEAKS <= sign * PEAKS[source] for sign in (1, -1))
    others = np.arange(PEAKS.shape[1]) != FP64
    return tuple(one[:, others].all(axis=1)[:, None] & (one[:, [FP64]] | ~IN_FP64) for one in (lower, higher))


def scale_to_all(source: int) -> tuple[np.ndarray, np.ndarray]:
    """Times of all kernels on all GPUs over the measured ones, and the most by any resource: each (GPUs, kernels)."""
    carried = MeasuredTimes(TABLE, np.arange(TABLE.height), MEASURED_US, GPUS[source])
    found = [carried.scale_with_bracket(target) for target in GPUS]
    return tuple(np.array([getattr(one, name) for one in found]) / MEASURED_US for name in ("time_us", "most_us"))


@pytest.mark.parametrize("places", [range(start, len(GPUS), 4) for start in range(4)])
def test_no_time_leaves_the_range_of_the_peaks(places: range):
    """Of all pairs of GPUs, families and dtypes.

    - None is faster on a GPU that is lower in all peaks, and none slower on one that is higher.
    - None gains or loses more than the peak that differs most.

    Kernels in a wider dtype move more bytes, so a GPU that lacks their own is a slower memory to them.
    """
    for source in places:
        (times, most), (lower, higher) = scale_to_all(source), compare_peaks(source)
        wider = np.round((SIZES / SIZES[source])[:, DTYPE], 1)
        ratios = PEAKS[source] / PEAKS
        slowest, fastest = ratios.max(axis=1)[:, None], ratios.min(axis=1)[:, None]
        assert times[lower & (wider >= 1)].min() >= 1 / ROUNDING
        assert times[higher & (wider <= 1)].max() <= ROUNDING
        assert most[higher & (wider <= 1)].max() <= ROUNDING
        assert (times <= np.fmax(slowest * np.fmax(wider, 1), 1) * ROUNDING).all()
        assert (times >= np.fmin(fastest * np.fmin(wider, 1), 1) / ROUNDING).all()


def is_better(one: Hardware, other: Hardware) -> bool:
    """Return whether a GPU has at least another's peaks, its clock among them; of one vendor."""
    figures = zip(list_peaks(one), list_peaks(other), strict=True)
    higher = [mine >= its for place, (mine, its) in enumerate(figures) if place != FP64]
    return all(higher) and compare_gpus(one, other).better


SHAPES = (
    {"family": "gemm", "m": 4096, "n": 4096, "k": 4096},
    {"family": "gemm", "m": 16, "n": 8192, "k": 8192, "framework": "vllm"},
    {"family": "conv", "m": 401408, "n": 64, "k": 576, "channels": 64, "height": 56, "width": 56},
    {"family": "attention", "batch": 4, "heads": 32, "q_len": 2048, "kv_len": 2048, "head_dim": 128, "causal": True},
    {"family": "moe", "tokens": 4096, "hidden": 2048, "inter": 768, "topk": 8, "experts": 128},
    *({"family": family, "bytes": 4e8, "rows": 4096, "cols": 4096} for family in ("norm", "copy", "reduction")),
    *({"family": family} for family in FAMILIES),
)


@pytest.mark.parametrize("source", ["h100-sxm", "a100-sxm-80gb", "l4", "v100-pcie-16gb"])
def test_on_gpus_better_in_everything_intervals_end_little_over_the_measured_times(source: str):
    """With shapes and without, in all dtypes but those of kernels that such GPUs were measured to run more slowly.

    Only memory-efficient attention runs as three products in TF32; convolutions in fp32 may be Winograd's.
    """
    dtypes = [dtype for dtype in DTYPES if dtype not in ("fp64", "fp8_block", "3xtf32")]
    rows = pl.DataFrame([{**shape, "dtype": dtype} for shape in SHAPES for dtype in dtypes], infer_schema_length=None)
    modelled = Batch(rows).on(source)["time_us"].fill_null(300.0)
    measured = rows.with_columns(measured_us=modelled)
    batch, here = Batch(measured, source_gpu=source), derive_hardware(load_gpu(source))
    better = [gpu for gpu in GPUS if gpu.slug != source and is_better(gpu, here)]
    worse = [gpu for gpu in GPUS if gpu.slug != source and is_better(here, gpu)]
    assert len(better) + len(worse) > 10
    for gpu in better[::2]:
        found = batch.on(gpu.slug)
        assert (found["high_us"] <= 1.1 * modelled * ROUNDING).all(), gpu.slug
    for gpu in worse[::2]:
        assert (batch.on(gpu.slug)["time_us"] >= modelled / ROUNDING).all(), gpu.slug
