"""Every input meets every question: it works, or a message says why it can't."""

from pathlib import Path

import polars as pl
import pytest

from tests.answers.compositions import ASKS, CRASH, INPUTS, TABLE, WORKS, read_table, run_row
from tracekit.messages.catalogue import CATALOGUE


@pytest.mark.heavy
@pytest.mark.parametrize("kind", INPUTS)
def test_each_cell(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kind == "config.json":
        pytest.importorskip("transformers")
    if kind == "Chakra":
        pytest.importorskip("google.protobuf")
    row = dict(zip(ASKS, run_row(kind, tmp_path), strict=True))
    assert CRASH not in row.values()
    if request.config.getoption("--update-golden"):
        new = pl.DataFrame([{"input": kind} | row])
        rows = [one for one in read_table().iter_rows(named=True) if one["input"] != kind] if TABLE.exists() else []
        table = pl.concat([pl.DataFrame(rows), new], how="diagonal") if rows else new
        place = {name: number for number, name in enumerate(INPUTS)}
        table.sort(pl.col("input").replace_strict(place)).select("input", *ASKS).write_csv(TABLE)
    (golden,) = read_table().filter(pl.col("input") == kind).drop("input").iter_rows(named=True)
    assert row == golden


def test_each_refusal_has_a_reason() -> None:
    table = read_table()
    assert (table["input"].to_list(), table.columns[1:]) == ([*INPUTS], [*ASKS])
    cells = {cell for column in table.columns[1:] for cell in table[column]}
    assert cells - {WORKS} <= CATALOGUE.keys()
