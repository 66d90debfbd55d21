"""The ledger of predictions: its score by hand, and that what is committed stays."""

from pathlib import Path

import polars as pl
import pytest

from tests.validation.ledger.__main__ import COLUMNS, main, score_ledger, write_ledger

FOLDER = Path(__file__).parent / "ledger"


def test_the_score_by_hand() -> None:
    """100 for 80 is 25 % off and outside of 90 to 110, 50 for 55 is 10 % off and inside; the median is between them."""
    predicted = pl.DataFrame(
        {
            "benchmark": ["a", "a", "b"], "system": ["x", "y", "x"], "samples_per_s": [100.0, 50.0, 1.0],
            "low": [90.0, 40.0, 0.5], "high": [110.0, 60.0, 2.0],
        }
    )  # fmt: skip
    results = pl.DataFrame({"benchmark": ["a", "a", "c"], "system": ["x", "y", "x"], "samples_per_s": [80, 55, 3]})
    text = score_ledger(predicted, results)
    assert "+25.0 %" in text
    assert "-9.1 %" in text
    assert "1 of 2 inside; 1 without a result" in text
    assert "Median error 17.3 %" in text  # exp of the mean of ln 1.25 and ln 1.1


def test_a_ledger_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.validation.ledger.__main__.ENTRIES", ())
    write_ledger(tmp_path / "one.csv")
    with pytest.raises(FileExistsError):
        write_ledger(tmp_path / "one.csv")
    assert main(["score"]) == 2


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.csv")), ids=lambda path: path.stem)
def test_what_is_committed_can_be_scored(path: Path) -> None:
    table = pl.read_csv(path)
    assert tuple(table.columns) == COLUMNS
    assert (table["low"] <= table["samples_per_s"]).all()
    assert (table["samples_per_s"] <= table["high"]).all()
    assert table["date"].unique().to_list() == [path.stem.rpartition("_")[2]]
    assert f"{table.height} of {table.height} inside" in score_ledger(table, table)
