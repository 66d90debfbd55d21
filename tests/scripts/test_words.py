"""Scripts that need words on their command line tell what these are."""

from importlib import import_module
from pathlib import Path

import pytest

SCRIPTS = [
    path.stem for path in (Path(__file__).parents[2] / "scripts").glob("*.py") if "import given" in path.read_text()
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_without_them_a_script_prints_its_usage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    with pytest.raises(SystemExit, match=f"^usage: python scripts/{name}.py [A-Z]"):
        import_module(name).main()


def test_nor_does_it_take_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["evaluate_like.py", "one", "two", "three"])
    with pytest.raises(SystemExit, match=r"^usage: "):
        import_module("evaluate_like").main()


def test_there_are_some() -> None:
    assert "evaluate_missing" in SCRIPTS
