"""FBGEMM's look-ups and updates against published times, from tables, indices and where the weights lie.

None of them is in the fit, but the share of the link's rate that managed tables get was chosen on those of
recsys-examples. A backward pass sorts the indices, then updates rows. Look-ups through a cache of managed tables aren't
predicted: rows come and go by the cache's policy. torchrec names no GPU; an H100 is assumed.
"""

from collections.abc import Iterator
from statistics import median

import polars as pl

from predictors import load_gpu, predict
from tests.validation.study import format_table, list_sources, read_published
from tracekit.index_distribution import ZipfPattern
from tracekit.workload.ops.table_lookups import (
    UPDATING_CLOCKS,
    Placement,
    TableLookup,
    compute_fbgemm_lookup,
    compute_update_columns,
    count_block_clocks,
)

INPUTS = ()
SORTING_PASSES, SORTED_BYTES = 5, 24
"""Passes that sort and list the indices, and bytes that each reads and writes for an index with its position."""
HEADINGS = (
    "source", "GPU", "tables", "placement", "phase, optimizer", "measured", "predicted", "error", "90 % interval",
)  # fmt: skip


def run() -> str:
    """Return a row for each published time, and the errors of all."""
    found = [(row, *predict_case(row)) for row in read_published("table_lookups").iter_rows(named=True)]
    errors = [100 * (time / row["us"] - 1) for row, time, _, _ in found]
    inside = sum(low <= row["us"] <= high for row, _, low, high in found)
    absolute = [abs(error) for error in errors]
    within = sum(error <= 20 for error in absolute)
    total = (str(len(found)), f"{median(absolute):.0f} %", f"{within} of {len(found)}", f"{inside} of {len(found)}")
    return "\n".join(
        (
            "# Look-ups against published times\n",
            format_table(("rows", "absolute error, median", "within 20 %", "inside"), [total]),
            format_table(HEADINGS, list(list_rows(found))),
            list_sources("table_lookups"),
        )
    )


def list_rows(found: list[tuple[dict[str, object], float, float, float]]) -> Iterator[tuple[str, ...]]:
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
    case = {name: float(str(row[name])) for name in ("tables", "rows", "width", "indices", "bags", "alpha")}
    table = TableLookup(
        rows=int(case["rows"]),
        width=case["width"],
        indices=case["indices"],
        bags=case["bags"],
        pattern=ZipfPattern(case["alpha"]),
        placement=Placement(str(row["placement"])),
        tables=int(case["tables"]),
    )
    kernels: list[dict[str, object]] = [{"family": "embedding", **compute_fbgemm_lookup([table])}]
    if row["phase"] == "backward":
        updates = compute_update_columns([table], str(row["optimizer"]))
        assert updates is not None
        clocks = UPDATING_CLOCKS + count_block_clocks([table])
        sorting = {"family": "reduction", "bytes": round(SORTED_BYTES * table.tables * table.indices)}
        kernels = [{"family": "optimizer", **updates, "serial_clocks": clocks}, *[sorting] * SORTING_PASSES]
    frame = pl.DataFrame([{"dtype": "fp32", **kernel} for kernel in kernels], infer_schema_length=None)
    times = predict(frame, load_gpu(str(row["gpu"]))).select(pl.col("time_us", "low_us", "high_us").sum())
    time, low, high = times.row(0)
    return time, low, high
