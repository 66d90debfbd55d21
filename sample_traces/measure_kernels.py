"""Measure kernels on this machine's GPU by CUDA events and by the profiler.

    python -m sample_traces.measure_kernels OUT.json

The shapes are those of ``tracekit calibrate --bench``; OUT.json is a result of the same format, with ``profiled_us``
beside: what a trace would show for the same call. A table says how the two compare.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch.profiler import ProfilerActivity, profile

from predictors import microbench

CALLS = 20
"""Call under the profiler, after as many without."""


def main() -> None:
    """Measure, write and compare."""
    if len(sys.argv) != 2:
        sys.exit("measure_kernels: name the file to write, and nothing else")
    if not torch.cuda.is_available():
        sys.exit("measure_kernels: PyTorch finds no CUDA GPU on this machine")
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    precisions = microbench.list_precisions(gpu.major, gpu.minor, torch.version.hip is not None)
    profiled: list[float] = []

    def timer(call: Callable[[], Any]) -> tuple[float, float]:
        measured = microbench.measure_us(call)
        profiled.append(measure_profiled_us(call))
        return measured

    result = microbench.measure(microbench.generate_cases("cuda", precisions), timer)
    kernels = [row | {"profiled_us": us} for row, us in zip(result["kernels"], profiled, strict=True)]
    table = {"format": microbench.FORMAT, **microbench.describe_machine(), **result, "kernels": kernels}
    Path(sys.argv[1]).write_text(json.dumps(table, indent=1) + "\n")
    sys.stdout.write("\n".join(compare_by_family(pl.DataFrame(kernels, infer_schema_length=None))) + "\n")


def measure_profiled_us(call: Callable[[], Any]) -> float:
    """Measure the microseconds of GPU work in one call by the profiler."""
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    on_gpu = (event for event in recorded.events() if event.device_type != torch.autograd.DeviceType.CPU)
    return sum(event.time_range.elapsed_us() for event in on_gpu) / CALLS


def compare_by_family(kernels: pl.DataFrame) -> Iterator[str]:
    """Yield the profiler's times over the events' by family: the median and the quartiles."""
    ratio = 100 * (pl.col("profiled_us") / pl.col("measured_us") - 1)
    rows = kernels.group_by("family", maintain_order=True).agg(
        pl.len(), *(ratio.quantile(part, "linear").alias(str(part)) for part in (0.25, 0.5, 0.75))
    )
    yield "| family | kernels | profiler over events, median | quartiles |"
    yield "|---|---|---|---|"
    for family, count, low, middle, high in rows.iter_rows():
        yield f"| {family} | {count} | {middle:+.1f} % | {low:+.1f} to {high:+.1f} % |"


if __name__ == "__main__":
    main()
