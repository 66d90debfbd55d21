"""How much of the GPU time of real traces has known work?

And which kernels beat their bound, which means that their work was counted wrong.

`python -m tests.validation.studies.coverage TRACE... [--top 10] [--gpu mi300x]` lists the largest kernels of a trace
whose work isn't known or that are faster than their bound.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import tracekit as tk
from predictors import PredictorError, identify_gpu, resolve_gpu
from predictors import predict as predict_kernels
from tests.validation.study import REAL_TRACES, find_input, format_table
from tracekit.errors import NoGpuActivityError, TracekitError
from tracekit.reporting.sections.groups import INFERRED_SOURCES
from tracekit.trace import RankTrace
from tracekit.workload.kernel_table import build_kernel_table, has_work
from tracekit.workload.step_kinds import compute_time_share

INPUTS = (REAL_TRACES,)
MIN_BEATEN_UTILIZATION = 1.02
CACHE_REACH = 4
"""Up to how many times the last-level cache a kernel's bytes may partly be in it: what it reads and what it writes."""
HEADINGS = (
    "trace", "GPU", "GPU time, ms", "exact", "of it inferred", "classified", "unknown", "beats its bound", "from cache",
)  # fmt: skip


def run() -> str:
    """Return a row for each trace."""
    files = [path for path in sorted(find_input(REAL_TRACES).glob("*.json.gz")) if ".et." not in path.name]
    return f"# GPU time whose work is known\n\nIn percent.\n\n{format_table(HEADINGS, list_rows(files))}"


def list_rows(files: list[Path]) -> Iterator[tuple[str, ...]]:
    """Yield the rows; files that aren't traces are left out."""
    for path in files:
        try:
            yield format_coverage(measure_coverage(path))
        except NoGpuActivityError:
            yield path.name.removesuffix(".json.gz"), "", "no GPU activity", *[""] * 6
        except TracekitError:
            continue


@dataclass(frozen=True)
class TraceCoverage:
    """Percentages of a trace's GPU time, and its kernels that no bound or no work explains."""

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


def measure_coverage(path: Path, top: int = 0, gpu: str | None = None) -> TraceCoverage:
    """Measure the coverage of a trace's first rank.

    Args:
        path: The trace.
        top: How many kernels to list.
        gpu: The GPU that it was recorded on, where the trace doesn't say.
    """
    rank = tk.load(path).rank()
    kernels = build_kernel_table(rank).with_columns(exact=has_work(), time_us=pl.col("dur_ns") / 1e3)
    nothing = (pl.col("family") == "other") | ((pl.col("family") == "collective") & pl.col("collective").is_null())
    unknown = ~pl.col("exact") & nothing
    gpu = _find_gpu(rank) or gpu
    whole_us = float(kernels["time_us"].sum())
    violations = _find_violations(kernels, gpu) if gpu else kernels.clear().with_columns(cached=False)
    return TraceCoverage(
        trace=path.name.removesuffix(".json.gz"),
        gpu=gpu or "unknown",
        gpu_ms=whole_us / 1e3,
        exact=compute_time_share(kernels, "time_us", pl.col("exact")),
        inferred=compute_time_share(kernels, "time_us", pl.col("work_from").is_in(INFERRED_SOURCES).fill_null(False)),
        classified=compute_time_share(kernels, "time_us", ~pl.col("exact") & ~unknown),
        unknown=compute_time_share(kernels, "time_us", unknown),
        beaten=100 * float(violations.filter(~pl.col("cached"))["time_us"].sum()) / whole_us,
        cached=100 * float(violations.filter("cached")["time_us"].sum()) / whole_us,
        holes=_list_largest(kernels.filter(~pl.col("exact")), whole_us, top),
        violations=_list_largest(violations, whole_us, top),
    )


def _find_gpu(rank: RankTrace) -> str | None:
    device = rank.device
    if device is None:
        return None
    try:
        return identify_gpu(device.name, device.sms, device.memory_bytes, device.compute_capability).gpu.slug
    except PredictorError:
        return None


def _find_violations(kernels: pl.DataFrame, gpu: str) -> pl.DataFrame:
    """Return kernels that ran faster than their work allows on this GPU: a work count that is too high."""
    result = predict_kernels(kernels.with_columns(measured_us="time_us"), gpu, source_gpu=gpu)
    reach = CACHE_REACH * resolve_gpu(gpu).gpu.last_level_cache_bytes
    moved = pl.coalesce("bytes", pl.lit(0)) * pl.col("share")
    beaten = kernels.hstack(result.select("bound_us", "utilization")).filter(
        pl.col("utilization") > MIN_BEATEN_UTILIZATION
    )
    return beaten.with_columns(cached=moved.is_between(1, reach))


def _list_largest(kernels: pl.DataFrame, whole_us: float, top: int) -> pl.DataFrame:
    keys = ["name", "op", "family", "dtype", "input_dims"]
    extra = [pl.col("utilization").median()] if "utilization" in kernels.columns else []
    percent = (100 * pl.col("time_us").sum() / whole_us).alias("percent")
    grouped = kernels.group_by(keys).agg(percent, *extra, count=pl.len())
    return grouped.sort("percent", "name", descending=[True, False]).head(top)


def format_coverage(row: TraceCoverage) -> tuple[str, ...]:
    """Return the cells of one trace."""
    percents = [f"{value:.1f}" for value in (row.exact, row.inferred, row.classified, row.unknown)]
    bound = [f"{row.beaten:.1f}", f"{row.cached:.1f}"] if row.gpu != "unknown" else ["", ""]
    return row.trace, row.gpu, f"{row.gpu_ms:.1f}", *percents, *bound


def list_details(row: TraceCoverage) -> Iterator[str]:
    """Yield a line for each of the largest kernels without known work, or faster than their bound."""
    for title, table in (("no exact work", row.holes), ("faster than the bound", row.violations)):
        for kernel in table.iter_rows(named=True):
            utilization = f"{kernel['utilization']:.2f}x " if "utilization" in kernel else ""
            yield (
                f"{title}: {kernel['percent']:.2f} % {utilization}n={kernel['count']} {kernel['family']} "
                f"{kernel['dtype']} {kernel['name'][:110]} | {kernel['op']} {(kernel['input_dims'] or '')[:150]}"
            )


def main() -> None:
    """Print the largest kernels of traces that lack work or beat their bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--top", type=int, default=10, help="kernels of each kind")
    parser.add_argument("--gpu", help="GPU of traces that don't name theirs")
    options = parser.parse_args()
    for path in options.traces:
        row = measure_coverage(path, options.top, options.gpu)
        print(" | ".join(format_coverage(row)), *list_details(row), sep="\n")


if __name__ == "__main__":
    main()
