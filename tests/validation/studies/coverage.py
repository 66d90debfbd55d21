"""How much of the GPU time of real traces has work known: the table of tests/validation/notes/coverage.md.

python -m tests.validation.studies.coverage FOLDER_OR_TRACE... [--top 10] [--gpu mi300x]
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import tracekit as tk
from predictors import PredictorError, identify_gpu, resolve_gpu
from predictors import predict as predict_kernels
from tracekit.errors import NoGpuActivityError
from tracekit.reporting.sections.coverage import INFERRED_SOURCES
from tracekit.trace import RankTrace
from tracekit.workload.kernel_table import build_kernel_table, has_work
from tracekit.workload.time_share import compute_time_share

BEATEN = 1.02
CACHED = 4
"""Up to how many times the last-level cache a kernel's bytes may partly be in it: what it reads and what it writes."""


@dataclass(frozen=True)
class Row:
    """One trace: shares of its GPU time in percent, and its kernels that no bound or no work explains."""

    trace: str
    gpu: str
    gpu_ms: float
    exact: float
    inferred: float
    classified: float
    unknown: float
    beaten: float
    cached: float
    holes: pl.DataFrame
    violations: pl.DataFrame


def measure(path: Path, top: int, gpu: str | None = None) -> Row:
    """The coverage of one trace's first rank.

    Args:
        path: The trace.
        top: How many kernels to list.
        gpu: The GPU that it was recorded on, where the trace doesn't say.
    """
    rank = tk.load(path).rank()
    kernels = build_kernel_table(rank).with_columns(exact=has_work(), time_us=pl.col("dur_ns") / 1e3)
    nothing = (pl.col("family") == "other") | ((pl.col("family") == "collective") & pl.col("collective").is_null())
    unknown = ~pl.col("exact") & nothing
    gpu = _gpu(rank) or gpu
    violations = _violations(kernels, gpu) if gpu else kernels.clear().with_columns(cached=False)
    return Row(
        trace=path.name.removesuffix(".json.gz"),
        gpu=gpu or "unknown",
        gpu_ms=kernels["time_us"].sum() / 1e3,
        exact=compute_time_share(kernels, "time_us", pl.col("exact")),
        inferred=compute_time_share(kernels, "time_us", pl.col("work_from").is_in(INFERRED_SOURCES).fill_null(False)),
        classified=compute_time_share(kernels, "time_us", ~pl.col("exact") & ~unknown),
        unknown=compute_time_share(kernels, "time_us", unknown),
        beaten=100 * violations.filter(~pl.col("cached"))["time_us"].sum() / kernels["time_us"].sum(),
        cached=100 * violations.filter("cached")["time_us"].sum() / kernels["time_us"].sum(),
        holes=_largest(kernels.filter(~pl.col("exact")), kernels["time_us"].sum(), top),
        violations=_largest(violations, kernels["time_us"].sum(), top),
    )


def _gpu(rank: RankTrace) -> str | None:
    device = rank.device
    if device is None:
        return None
    try:
        return identify_gpu(device.name, device.sms, device.memory_bytes, device.compute_capability).gpu.slug
    except PredictorError:
        return None


def _violations(kernels: pl.DataFrame, gpu: str) -> pl.DataFrame:
    """Kernels that ran faster than their work allows on this GPU: a work count that is too high."""
    result = predict_kernels(kernels.with_columns(measured_us="time_us"), gpu, source_gpu=gpu)
    reach = CACHED * resolve_gpu(gpu).gpu.last_level_cache_bytes
    moved = pl.coalesce("bytes", pl.lit(0)) * pl.col("share")
    beaten = kernels.hstack(result.select("bound_us", "utilization")).filter(pl.col("utilization") > BEATEN)
    return beaten.with_columns(cached=moved.is_between(1, reach))


def _largest(kernels: pl.DataFrame, whole_us: float, top: int) -> pl.DataFrame:
    keys = ["name", "op", "family", "dtype", "input_dims"]
    extra = [pl.col("utilization").median()] if "utilization" in kernels.columns else []
    percent = (100 * pl.col("time_us").sum() / whole_us).alias("percent")
    grouped = kernels.group_by(keys).agg(percent, *extra, count=pl.len())
    return grouped.sort("percent", "name", descending=[True, False]).head(top)


def _traces(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        found = sorted(path.glob("*.json.gz")) if path.is_dir() else [path]
        yield from (trace for trace in found if ".et." not in trace.name)


def _markdown(row: Row) -> str:
    shares = " | ".join(f"{value:.1f}" for value in (row.exact, row.inferred, row.classified, row.unknown))
    bound = f"{row.beaten:.1f} | {row.cached:.1f}" if row.gpu != "unknown" else " | "
    return f"| {row.trace} | {row.gpu} | {row.gpu_ms:.1f} | {shares} | {bound} |"


def _details(row: Row) -> Iterator[str]:
    for title, table in (("no exact work", row.holes), ("faster than the bound", row.violations)):
        for kernel in table.iter_rows(named=True):
            utilization = f"{kernel['utilization']:.2f}x " if "utilization" in kernel else ""
            yield (
                f"    {title}: {kernel['percent']:.2f} % {utilization}n={kernel['count']} {kernel['family']} "
                f"{kernel['dtype']} {kernel['name'][:110]} | {kernel['op']} {(kernel['input_dims'] or '')[:150]}"
            )


def main() -> None:
    """Print the table; with ``--top``, also what is missing from each trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--top", type=int, default=0)
    parser.add_argument("--gpu", help="GPU of the traces that don't name theirs")
    args = parser.parse_args()
    print(
        "| trace | GPU | GPU time, ms | exact | of it inferred | classified | unknown | beats its bound | from cache |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for path in _traces(args.paths):
        try:
            row = measure(path, args.top, args.gpu)
        except NoGpuActivityError:
            print(f"| {path.name.removesuffix('.json.gz')} | | no GPU activity | | | | | | |")
            continue
        print(_markdown(row))
        for line in _details(row):
            print(line)


if __name__ == "__main__":
    main()
