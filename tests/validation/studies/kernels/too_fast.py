"""Measurements that the fit leaves out because they are faster than the peaks of their GPU."""

import polars as pl

from predictors.columns import build_law_inputs, prepare_kernels
from predictors.kernels import name_miopen_laws
from predictors.training.__main__ import BUNDLED_TABLES
from predictors.training.datasets import load_datasets
from predictors.training.physics import MAX_PEAK_RATIO, MAX_TRAFFIC_RATIO, find_impossible
from predictors.training.published import RATE_SOURCE
from predictors.weights_file import load_hardware
from predictors.work import compute_bound_us, uses_matrix_units
from tests.validation.study import AICONFIGURATOR, KERNEL_DATA, find_input, format_table

INPUTS = (KERNEL_DATA, AICONFIGURATOR)
CELL = ("law", "gpu", "source", "engine", "release", "dtype")


def run() -> str:
    """Return the list, a row for each law, GPU, engine, release and format."""
    rows = load_datasets(find_input(KERNEL_DATA), find_input(AICONFIGURATOR), *BUNDLED_TABLES)
    rows = rows.filter(pl.col("source") != RATE_SOURCE)
    headings = ("law", "GPU", "times", "engine", "release", "format", "left out", "of", "peak over time, most")
    cells = pl.concat([_list_cells(str(gpu), part) for (gpu,), part in rows.group_by("gpu", maintain_order=True)])
    found = cells.filter(pl.col("dropped") > 0).sort("dropped", *CELL, descending=[True, *[False] * len(CELL)])
    return "\n".join(
        (
            "# Kernels faster than their GPU\n",
            f"{cells['dropped'].sum():,} of {cells['rows'].sum():,} kernels of all tables that are fitted, by the rule "
            f"of `predictors.training.physics`: arithmetic of matrix units {MAX_PEAK_RATIO:g} times the printed peak, "
            f"or compulsory traffic {MAX_TRAFFIC_RATIO:g} times what memory and cache allow. Of laws of vector units "
            f"{_count_vector(cells):,} are.\n",
            format_table(headings, map(_format_cell, found.iter_rows())),
        )
    )


def _list_cells(gpu: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Count a GPU's kernels, and those of them that are left out, by cell."""
    table, on = prepare_kernels(rows).hstack(rows.select("gpu", "source", "latency_us")), load_hardware(gpu)
    table = table.with_columns(name_miopen_laws(pl.lit(on.gpu.vendor == "amd")))
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


def _count_vector(cells: pl.DataFrame) -> int:
    on_vector = pl.col("law").map_elements(lambda law: not uses_matrix_units(law), return_dtype=pl.Boolean)
    return int(cells.filter(on_vector)["dropped"].sum())


def _format_cell(cell: tuple[str, str, str, str | None, float | None, str | None, int, int, float]) -> tuple[str, ...]:
    law, gpu, source, engine, release, dtype, dropped, rows, most = cell
    told = "–" if release is None else f"{release:g}"
    return law, gpu, source, engine or "–", told, dtype or "–", f"{dropped:,}", f"{rows:,}", f"{most:.2f}"
