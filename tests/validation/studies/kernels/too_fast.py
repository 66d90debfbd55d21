"""Measurements that the fit leaves out because they are faster than the peaks of their GPU."""

import polars as pl

from predictors.columns import build_law_inputs, prepare_kernels
from predictors.training.datasets import load_datasets
from predictors.training.physics import MAX_PEAK_RATIO, MAX_TRAFFIC_RATIO, find_impossible
from predictors.weights_file import load_hardware
from predictors.work import compute_bound_us
from tests.validation.study import AICONFIGURATOR, KERNEL_DATA, find_input, format_table

INPUTS = (KERNEL_DATA, AICONFIGURATOR)
CELL = ("law", "gpu", "engine", "release", "dtype")


def run() -> str:
    """Return the list, a row for each law, GPU, engine, release and format."""
    rows = load_datasets(find_input(KERNEL_DATA) / "aiconfigurator", find_input(AICONFIGURATOR))
    headings = ("law", "GPU", "engine", "release", "format", "left out", "of", "peak over time, most")
    cells = pl.concat([_list_cells(str(gpu), part) for (gpu,), part in rows.group_by("gpu", maintain_order=True)])
    found = cells.filter(pl.col("dropped") > 0).sort("dropped", *CELL, descending=[True, *[False] * len(CELL)])
    return "\n".join(
        (
            "# Kernels faster than their GPU\n",
            f"{cells['dropped'].sum():,} of {cells['rows'].sum():,} kernels of matrix units, by the rule of "
            f"`predictors.training.physics`: arithmetic {MAX_PEAK_RATIO:g} times the printed peak, or compulsory "
            f"traffic {MAX_TRAFFIC_RATIO:g} times what memory and cache allow.\n",
            format_table(headings, map(_format_cell, found.iter_rows())),
        )
    )


def _list_cells(gpu: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Count a GPU's kernels, and those of them that are left out, by cell."""
    table, on = prepare_kernels(rows).hstack(rows.select("gpu", "latency_us")), load_hardware(gpu)
    parts = [
        part.with_columns(
            too_fast=pl.Series(find_impossible(str(law), part, on)),
            ratio=pl.Series(compute_bound_us(str(law), build_law_inputs(part).to_columns(on), on))
            / pl.col("latency_us"),
        )
        for (law,), part in table.drop_nulls("law").group_by("law", maintain_order=True)
    ]
    too_fast = pl.col("too_fast")
    return pl.concat(parts).group_by(CELL, maintain_order=True).agg(
        dropped=too_fast.sum(), rows=pl.len(), most=pl.col("ratio").filter(too_fast).max()
    )  # fmt: skip


def _format_cell(cell: tuple[str, str, str, float, str, int, int, float]) -> tuple[str, ...]:
    law, gpu, engine, release, dtype, dropped, rows, most = cell
    return law, gpu, engine, f"{release:g}", dtype, f"{dropped:,}", f"{rows:,}", f"{most:.2f}"
