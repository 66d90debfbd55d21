"""Kernel names of 2024 to 2026 from public traces and sources, each with what it tells (``kernel_names.csv``).

The names are from profiles, or from the source that a Triton function or an assembly kernel is named in; the other
columns were filled in by hand. An empty cell: the name doesn't tell. A family that is empty is "other".
"""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tracekit.workload.names import (
    infer_dtype,
    infer_family,
    infer_library,
    infer_weight_dtype,
    parse_kernel_name,
)

TABLE = Path(__file__).with_name("kernel_names.csv")
ROWS = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))


def tile(name: str) -> str:
    known = parse_kernel_name(name)
    sides = (None,) * 3 if known is None else (known.tile_m, known.tile_n, known.tile_k)
    return "x".join("" if side is None else str(side) for side in sides)


@pytest.mark.parametrize(
    ("columns", "infer"),
    [
        (("library",), infer_library),
        (("family",), infer_family),
        (("dtype",), infer_dtype),
        (("weights",), infer_weight_dtype),
        (("tile_m", "tile_n", "tile_k"), tile),
    ],
)
def test_every_name_tells_what_its_row_says(columns: tuple[str, ...], infer: Callable[[str], str | None]) -> None:
    said = {row["name"]: "x".join(row[column] for column in columns) for row in ROWS}
    found = {name: infer(name) or "" for name in said}
    assert {name: (said[name], found[name]) for name in said if said[name] != found[name]} == {}


def test_the_table_names_its_sources() -> None:
    assert len({row["name"] for row in ROWS}) == len(ROWS) >= 600
    assert all(row["source"] for row in ROWS)
