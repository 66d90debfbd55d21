"""Tables of computed values that are kept as golden files, one row a line."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden" / "levels"

Row = dict[str, float | str]


def round_level(value: float) -> float:
    return float(f"{value:.4g}")


def check_levels(name: str, got: Mapping[str, Row], request: pytest.FixtureRequest) -> None:
    """Assert that each number of a table is within 1 % of the golden one, and each text the same."""
    path = GOLDEN / f"{name}.json"
    if request.config.getoption("--update-golden"):
        lines = ",\n".join(f"{json.dumps(row)}: {json.dumps(values)}" for row, values in got.items())
        path.write_text(f"{{\n{lines}\n}}\n")
    kept = json.loads(path.read_text())
    assert got.keys() == kept.keys()
    changed = {
        row: (kept[row], values)
        for row, values in got.items()
        if values.keys() != kept[row].keys()
        or any(
            value != (kept[row][column] if isinstance(value, str) else pytest.approx(kept[row][column], rel=0.01))
            for column, value in values.items()
        )
    }
    assert changed == {}
