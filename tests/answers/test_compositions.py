"""Every input meets every question: it works, or a message says why it can't."""

from pathlib import Path

import polars as pl
import pytest

from tests.answers.compositions import COMPOSITIONS, CRASH, WORKS
from tracekit.messages.catalogue import CATALOGUE


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("command", "kind"), [(one.command, kind) for one in COMPOSITIONS.values() for kind in one.inputs]
)
def test_each_cell(command: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kind.startswith("config.json") and command in ("predict", "search"):
        pytest.importorskip("transformers")
    if kind == "Chakra":
        pytest.importorskip("google.protobuf")
    asked = COMPOSITIONS[command]
    row = dict(zip(asked.asks, asked.run_row(kind, tmp_path), strict=True))
    assert CRASH not in row.values()
    if request.config.getoption("--update-golden"):
        new = pl.DataFrame([{"input": kind} | row])
        known = asked.read_table().iter_rows(named=True) if asked.table.exists() else ()
        rows = [one for one in known if one["input"] != kind]
        table = pl.concat([pl.DataFrame(rows), new], how="diagonal") if rows else new
        place = {name: number for number, name in enumerate(asked.inputs)}
        table.sort(pl.col("input").replace_strict(place)).select("input", *asked.asks).write_csv(asked.table)
    (golden,) = asked.read_table().filter(pl.col("input") == kind).drop("input").iter_rows(named=True)
    assert row == golden


@pytest.mark.parametrize("asked", COMPOSITIONS.values(), ids=COMPOSITIONS)
def test_each_refusal_has_a_reason(asked) -> None:
    table = asked.read_table()
    assert (table["input"].to_list(), table.columns[1:]) == ([*asked.inputs], [*asked.asks])
    cells = {cell for column in table.columns[1:] for cell in table[column]}
    assert cells - {WORKS} <= CATALOGUE.keys()
