"""The tool that puts faults into the code, on code of a few lines."""

from pathlib import Path

import pytest

from tests.mutation.__main__ import tabulate
from tests.mutation.areas import AREAS, LEFT_OUT, draw_faults, find_area, list_files
from tests.mutation.covering import match_lines
from tests.mutation.mutators import compiles, find_faults

ROOT = Path(__file__).parents[2]


def faults(source: str) -> set[tuple[str, str]]:
    return {(fault.kind, fault.source) for fault in find_faults("x.py", source) if compiles(fault)}


@pytest.mark.parametrize(
    ("source", "kind", "becomes"),
    [
        ("a < b", "comparison", "(a <= b)"),
        ("a + b", "arithmetic", "(a - b)"),
        ("max(a)", "opposite", "min(a)"),
        ("a.sum()", "opposite", "a.max()"),
        ("x = a and b", "and/or", "x = (a or b)"),
        ("x = a and b", "dropped condition", "x = (a)"),
        ("if a: b()", "dropped condition", "if False: b()"),
        ("x = 3", "constant", "x = 4"),
        ("x = a.sort()", "dropped call", "x = (a)"),
        ("f(a, b)", "swapped arguments", "f(b, a)"),
        ("f(a, b=c)", "dropped argument", "f(a)"),
        ("f(a)", "dropped statement", "pass"),
        ("pl.col('a') + pl.col('b')", "name", "pl.col('b') + pl.col('b')"),
    ],
)
def test_a_fault_changes_its_place_alone(source: str, kind: str, becomes: str) -> None:
    assert (kind, becomes) in faults(source)


@pytest.mark.parametrize(
    "source",
    ['"""Says 3 < 4."""', "import a", "def f(a: int | None) -> int: ...", "assert a < 3"],
)
def test_what_does_nothing_is_left_alone(source: str) -> None:
    assert not {kind for kind, _ in faults(source)} - {"dropped statement"}


def test_leaving_out_what_is_the_default_is_no_fault() -> None:
    assert "dropped argument" not in {kind for kind, _ in faults("zip(a, b, strict=False)")}


@pytest.mark.parametrize(
    "source",
    ["min(a, b)", "np.maximum(a, b)", "pl.max_horizontal(a, b)", "and_(a, b)", "t.filter(a, b)", "q.where(a, b)"],
)
def test_another_order_is_no_fault_where_none_matters(source: str) -> None:
    assert "swapped arguments" not in {kind for kind, _ in faults(source)}


@pytest.mark.parametrize("source", ["max(a, b, key=c)", "np.where(a, b, c)", "filter(a, b)", "np.subtract(a, b)"])
def test_another_order_is_a_fault_elsewhere(source: str) -> None:
    assert "swapped arguments" in {kind for kind, _ in faults(source)}


def test_the_same_seed_draws_the_same_faults_in_every_area() -> None:
    names = ["comm", "redact"]
    one, same, other = (
        [(name, fault.path, fault.line, fault.after) for name, fault in draw_faults(ROOT, names, 4, seed)]
        for seed in (1, 1, 2)
    )
    assert one == same != other
    assert [name for name, *_ in one] == ["comm", "redact"] * 2


def test_every_module_has_one_area() -> None:
    files = [path for area in AREAS.values() for path in list_files(ROOT, area)]
    assert len(files) == len(set(files))
    there = (path for folder in ("tracekit", "predictors") for path in (ROOT / folder).rglob("*.py"))
    named = {path.relative_to(ROOT).as_posix() for path in there}
    assert {path for path in named if not path.startswith(LEFT_OUT)} == {*files}
    assert all(path in list_files(ROOT, find_area(path)) for path in files)


@pytest.mark.parametrize("name", AREAS)
def test_every_package_has_tests(name: str) -> None:
    assert [tests for tests in AREAS[name].tests if not any(ROOT.glob(f"{tests}*"))] == []
    assert find_area(list_files(ROOT, AREAS[name])[0]) == AREAS[name]


def test_what_is_left_out_exists() -> None:
    assert [path for path in LEFT_OUT if not (ROOT / path).exists()] == []


def test_lines_are_found_again_after_edits(tmp_path: Path) -> None:
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text("a\nb\nc\n")
    new.write_text("x\na\nc\n")
    assert match_lines(old, new) == {1: 2, 3: 3}


def test_the_table_counts_by_area() -> None:
    rows = [{"area": area, "noticed": noticed} for area, noticed in (("comm", True), ("comm", False), ("web", True))]
    assert list(tabulate(rows))[2:] == ["| comm | 2 | 1 | 50 |", "| web | 1 | 1 | 100 |", "| all | 3 | 2 | 67 |"]
