"""FBGEMM's look-ups and updates, and PyTorch's bags, against published times, from tables, indices and placement.

None of them is in the fit. Two constants were chosen with a look at some: how much of the link's rate managed tables
get (recsys-examples), and a warp's clocks for a row (torchrec). A backward pass sorts the indices, then updates rows.
A cache of managed tables is filled before the look-up; recsys-examples' holds a tenth of the rows. torchrec names no
GPU; an H100 is assumed. FBGEMM's benchmark draws evenly up to an alpha of 1 (generate_requests).
"""

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

import polars as pl

from predictors import load_gpu, predict
from tests.validation.study import format_table, list_sources, read_published
from tracekit.models.lookups import ZipfPattern
from tracekit.parallelism.unknown_work import apply_work_bounds, widen_intervals
from tracekit.workload.ops.embedding import compute_bag_lookup
from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.ops.table_lookups import (
    UPDATING_CLOCKS,
    Placement,
    TableLookup,
    compute_cache_fill,
    compute_fbgemm_lookup,
    compute_update_columns,
    count_block_clocks,
)
from tracekit.workload.signature import Signature

INPUTS = ()
SORTING_PASSES, SORTED_BYTES = 5, 24
"""Passes that sort and list the indices, and bytes that each reads and writes for an index with its position."""
BAGS_OF_PYTORCH = "flaggems-5610"
"""Source of the times of PyTorch's own op."""
WEIGHT_TYPES = {"fp32": (4, "float"), "fp16": (2, "c10::Half")}
"""Bytes of a weight, and its type as the profiler calls it."""
CACHED_FRACTION = 0.1
"""Of recsys-examples' rows (``cache_ratio`` of its README), the only source with a cache."""
GROUPS = ("source", "placement", "phase")
HEADINGS = (
    "source", "GPU", "tables", "placement", "phase, optimizer", "measured", "predicted", "error", "90 % interval",
)  # fmt: skip


def run() -> str:
    """Return the errors by source, placement and phase, those of all, and a row for each published time."""
    found = [(row, *predict_case(row)) for row in read_distinct().iter_rows(named=True)]
    headings = (*GROUPS, "rows", "error, median", "absolute", "within 20 %", "inside")
    return "\n".join(
        (
            "# Look-ups against published times\n",
            format_table(headings, list(summarise(found))),
            format_table(HEADINGS, list(list_rows(found))),
            list_sources("table_lookups"),
        )
    )


def read_distinct() -> pl.DataFrame:
    """Read the published times, each once: those of equal cases and phases that agree within a percent are one."""
    rows = read_published("table_lookups")
    near = rows.with_columns(near=(pl.col("us").log() / 0.01).round())
    return near.unique([name for name in near.columns if name != "us"], maintain_order=True, keep="first").drop("near")


Found = list[tuple[dict[str, object], float, float, float]]


def summarise(found: Found) -> Iterator[tuple[str, ...]]:
    """Yield the errors of each source, placement and phase, and of all."""
    groups: dict[tuple[str, ...], Found] = defaultdict(list)
    for one in found:
        groups[tuple(str(one[0][name]) for name in GROUPS)].append(one)
    for kind, rows in [*sorted(groups.items()), (("all", "", ""), found)]:
        pairs = [(float(str(row["us"])), time, low, high) for row, time, low, high in rows]
        errors = [100 * (time / us - 1) for us, time, _, _ in pairs]
        absolute = [abs(error) for error in errors]
        inside = sum(low <= us <= high for us, _, low, high in pairs)
        within = sum(error <= 20 for error in absolute)
        yield *kind, str(len(rows)), f"{median(errors):+.0f} %", f"{median(absolute):.0f} %", str(within), str(inside)


def list_rows(found: Found) -> Iterator[tuple[str, ...]]:
    """Yield a row for each published time."""
    for row, time, low, high in found:
        us = float(str(row["us"]))
        yield (
            *(str(row[name]) for name in ("source", "gpu")),
            f"{row['tables']} of {row['rows']:,} x {row['width']}",
            *(str(row["placement"]), " ".join(filter(None, (str(row["phase"]), str(row["optimizer"] or ""))))),
            *(f"{us / 1e3:.3g} ms", f"{time / 1e3:.3g} ms", f"{100 * (time / us - 1):+.0f} %"),
            f"{low / 1e3:.3g}–{high / 1e3:.3g} ms",
        )


def predict_case(row: dict[str, object]) -> tuple[float, float, float]:
    """Predict the time of a published case, with its interval."""
    frame = pl.DataFrame(list_kernels(row), infer_schema_length=None).with_columns(dtype=pl.lit(row["weight_type"]))
    gpu = load_gpu(str(row["gpu"]))
    times = predict(frame, gpu).select("time_us", "low_us", "high_us")
    if "work_low" in frame.columns:
        ends = apply_work_bounds(frame.with_columns(batch=1.0))
        bounded = frame.with_row_index("row").drop_nulls("work_low")["row"]
        times = widen_intervals(times, bounded, (predict(ends[0], gpu)["time_us"], predict(ends[1], gpu)["time_us"]))
    time, low, high = times.sum().row(0)
    return time, low, high


def list_kernels(row: dict[str, object]) -> list[Columns]:
    """List the kernels of a published case."""
    table = build_lookup(row)
    if row["source"] == BAGS_OF_PYTORCH:
        lookup = compute_bag_lookup(build_bag_signature(row), WEIGHT_TYPES["fp32"][0], table.pattern)
        assert lookup is not None
        return [{"family": "embedding", **lookup}]
    if row["phase"] == "forward":
        fills = [compute_cache_fill([table])] if table.placement is Placement.MANAGED_CACHING else []
        lookup = compute_fbgemm_lookup([table], float(str(row["output_bytes"])))
        return [{"family": "embedding", **columns} for columns in (*fills, lookup)]
    updates = compute_update_columns([table], str(row["optimizer"]))
    assert updates is not None
    clocks = UPDATING_CLOCKS + count_block_clocks([table])
    sorting: Columns = {"family": "reduction", "bytes": round(SORTED_BYTES * table.tables * table.indices)}
    return [{"family": "optimizer", **updates, "serial_clocks": clocks}, *[sorting] * SORTING_PASSES]


def build_lookup(row: dict[str, object]) -> TableLookup:
    """Build the look-ups of a published case."""
    case = {name: float(str(row[name])) for name in ("tables", "rows", "width", "indices", "bags", "alpha")}
    return TableLookup(
        rows=int(case["rows"]),
        width=case["width"],
        indices=case["indices"],
        bags=case["bags"],
        weight_bytes=WEIGHT_TYPES[str(row["weight_type"])][0],
        pattern=ZipfPattern(case["alpha"]),
        placement=Placement(str(row["placement"])),
        tables=int(case["tables"]),
        cached_fraction=CACHED_FRACTION,
    )


def build_bag_signature(row: dict[str, object]) -> Signature:
    """Build the inputs of PyTorch's op: a table, its indices and where each bag starts."""
    rows, width, indices, bags = (int(str(row[name])) for name in ("rows", "width", "indices", "bags"))
    types = [WEIGHT_TYPES[str(row["weight_type"])][1], "long int", "long int"]
    return Signature("aten::_embedding_bag", [[rows, width], [indices], [bags]], types, [""] * len(types))
