"""Columns of names as numbers."""

from __future__ import annotations

import polars as pl
import pytest

from predictors.arrays import CategoricalColumn


@pytest.mark.parametrize("names", [[], [None, None], ["bf16"] * 3, ["bf16", None], [None, "fp8", "bf16", "fp8", None]])
def test_each_row_keeps_its_name(names: list[str | None]):
    coded = CategoricalColumn.from_series(pl.Series(names, dtype=pl.String))
    assert coded.map(lambda name: name).tolist() == names
    assert coded.is_in("fp8", None).tolist() == [name in ("fp8", None) for name in names]
