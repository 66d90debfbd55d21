"""NVIDIA's DLRM for inference, captured without a GPU, against published throughputs.

Each latency has the copies of a batch to the GPU, from pageable memory, and the launches of a usual host. Nothing of it
is in any fit.
"""

from collections.abc import Iterator
from itertools import groupby
from statistics import median
from typing import Any

import polars as pl

import tracekit as tk
from predictors import load_gpu, predict
from tests.validation.published_jobs.recommenders import DENSE, FEATURES, build_inference
from tests.validation.study import format_table, list_sources, read_published

INPUTS = ()
KINDS = ("GPU", "precision", "CUDA graphs", "rows", "error, median", "absolute", "within 20 %", "inside")
HEADINGS = ("GPU", "precision", "CUDA graphs", "batch", "measured", "predicted", "error", "90 % interval")
DENSE_BYTES, INDEX_BYTES = 4, 4
"""Bytes of a number and of an index as they are copied; they are cast on the GPU."""
PAGEABLE_FRACTION = 0.5
"""Of the link's rate, at which pageable memory is copied; half is usual (tracekit's what-if pin-memory)."""


def run() -> str:
    """Return the errors of each kind of rows, then a row for each published throughput."""
    found = [(row, *predict_row(row)) for row in read_published("recommender_jobs").iter_rows(named=True)]
    return "\n".join(
        (
            "# NVIDIA's DLRM for inference\n",
            format_table(KINDS, list(summarise(found))),
            format_table(HEADINGS, list(list_rows(found))),
            list_sources("recommender_jobs"),
        )
    )


Found = list[tuple[dict[str, Any], float, float, float]]


def summarise(found: Found) -> Iterator[tuple[str, ...]]:
    """Yield the errors of each GPU, precision and way to launch, and of all."""
    ordered = sorted(found, key=lambda one: _get_kind(one[0]))
    for kind, rows in groupby(ordered, key=lambda one: _get_kind(one[0])):
        yield (*kind, *_describe(list(rows)))
    yield ("all", "", "", *_describe(found))


def _get_kind(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["gpu"], row["precision"], "on" if row["cuda_graphs"] else "off"


def _describe(found: Found) -> tuple[str, ...]:
    pairs = [(1e6 * row["batch"] / row["samples_per_s"], time, low, high) for row, time, low, high in found]
    errors = [100 * (time / us - 1) for us, time, _, _ in pairs]
    inside = sum(low <= us <= high for us, _, low, high in pairs)
    absolute = [abs(error) for error in errors]
    within = sum(error <= 20 for error in absolute)
    return str(len(pairs)), f"{median(errors):+.0f} %", f"{median(absolute):.0f} %", str(within), str(inside)


def list_rows(found: Found) -> Iterator[tuple[str, ...]]:
    """Yield a row for each published throughput."""
    for row, time, low, high in found:
        us = 1e6 * row["batch"] / row["samples_per_s"]
        yield (
            *_get_kind(row),
            f"{row['batch']:,}",
            *(f"{us / 1e3:.3g} ms", f"{time / 1e3:.3g} ms", f"{100 * (time / us - 1):+.0f} %"),
            f"{low / 1e3:.3g}–{high / 1e3:.3g} ms",
        )


def predict_row(row: dict[str, Any]) -> tuple[float, float, float]:
    """Predict the latency of a batch with its interval, in us."""
    model, *inputs = build_inference(row["batch"], row["precision"])
    trace = tk.capture(
        model, *inputs, tf32=row["precision"] == "tf32", cuda_graph=bool(row["cuda_graphs"]), gpu=row["gpu"]
    )
    target = tk.predict(trace, gpu=row["gpu"], host="typical")[row["gpu"]]
    copies = _predict_copies_us(row["gpu"], row["batch"])
    return tuple(end + copies for end in (target.step.step_time_us, target.low_us, target.high_us))  # type: ignore[return-value]


def _predict_copies_us(gpu: str, batch: int) -> float:
    """Predict the copies of a batch to the GPU."""
    sizes = [
        batch * count * size / PAGEABLE_FRACTION for count, size in ((DENSE, DENSE_BYTES), (FEATURES, INDEX_BYTES))
    ]
    kernels = pl.DataFrame([{"family": "memcpy", "copy_kind": "HtoD", "bytes": size} for size in sizes])
    return float(predict(kernels, load_gpu(gpu))["time_us"].sum())
