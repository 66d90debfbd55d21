"""The studies as a whole: each can be run by name, says what it lacks, and cites its figures."""

import re
from pathlib import Path

import pytest

from tests.validation import __main__ as validation
from tests.validation import study
from tests.validation.study import INPUTS, MissingInputError, find_input

FILES = sorted(study.PUBLISHED.glob("*.csv"))


def test_every_module_is_a_study_with_a_summary_and_tables() -> None:
    folder = Path(validation.__file__).parent / "studies"
    assert {path.stem for path in folder.glob("*.py")} == set(validation.STUDIES)
    for name in validation.STUDIES:
        module = validation.load_study(name)
        assert validation.summarize(module).endswith(".")
        assert callable(module.run)


def test_every_result_is_of_a_study() -> None:
    assert {path.stem for path in validation.RESULTS.glob("*.md")} - {"README"} <= set(validation.STUDIES)


@pytest.mark.parametrize("name", ["replay", "single_ops", "whole_models", "collectives_on_one_node"])
def test_a_study_without_its_input_says_so_and_writes_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(validation, "RESULTS", tmp_path)
    for variable in INPUTS:
        monkeypatch.delenv(variable, raising=False)
    assert validation.run_study(name, update=False) == 1
    assert f"{name} skipped: set TRACEKIT_" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_input_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(study.REAL_TRACES, str(tmp_path / "none"))
    with pytest.raises(MissingInputError, match="doesn't exist"):
        find_input(study.REAL_TRACES)


def test_a_study_writes_its_tables_under_the_command_that_made_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(validation, "RESULTS", tmp_path)
    assert validation.run_study("vector_kernels", update=False) == 0
    text = (tmp_path / "vector_kernels.md").read_text()
    assert text.startswith("<!-- Written by `python -m tests.validation vector_kernels`")
    assert "| rtx-4090 |" in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_published_figures_cite_their_source(path: Path) -> None:
    table = study.read_published(path.stem)
    cited = set(study.read_published("sources")["source"])
    assert table["source"].null_count() == 0
    assert all(source in cited or re.search(r"[/.]", source) for source in table["source"].unique())


def test_errors_are_summed_up() -> None:
    assert study.format_errors([-10.0, 4.0, 6.0]) == ("+4 %", "6 %", "-10 %")


def test_a_table_is_markdown() -> None:
    assert study.format_table(("a", "b"), [("x", "1")]) == "| a | b |\n| --- | ---: |\n| x | 1 |\n"
