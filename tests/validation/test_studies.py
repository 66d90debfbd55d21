"""The studies as a whole: each has its question, inputs and results, can be run by name, and says what it lacks."""

import re
from pathlib import Path

import pytest

from tests.validation import __main__ as command
from tests.validation import catalogue, study
from tests.validation.catalogue import STUDIES, Table, find_tables, load_study
from tests.validation.study import KNOWN_INPUTS, MissingInputError, find_input

FILES = sorted(study.PUBLISHED.glob("*.csv"))
FOLDER = Path(catalogue.__file__).parent / "studies"
TABLES = find_tables("all")


def list_input_names(table: Table) -> set[str]:
    """Return the inputs that a module imports."""
    names = {name for name, value in vars(study).items() if isinstance(value, str) and value in KNOWN_INPUTS}
    return {getattr(study, name) for name in names & set(vars(table.module))}


def test_every_module_and_folder_is_a_study() -> None:
    assert {path.stem for path in FOLDER.iterdir() if not path.name.startswith("__")} == set(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_asks_one_question(name: str) -> None:
    assert load_study(name).question.endswith("?")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_says_what_it_is_what_it_reads_and_where_it_is_written(table: Table) -> None:
    assert re.search(r"[.?]$", table.summary)
    assert set(table.inputs) == list_input_names(table)
    assert callable(table.module.run)
    written = table.results.read_text()
    assert f"`python -m tests.validation {table.name}`" in written.splitlines()[0]
    assert "\n# " in written


def test_every_result_is_of_a_table() -> None:
    written = {str(path.relative_to(catalogue.RESULTS).with_suffix("")) for path in catalogue.RESULTS.rglob("*.md")}
    assert written - {"README"} <= {table.name for table in TABLES}


def test_the_list_names_all_studies_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines if not line.startswith(" ")] == list(STUDIES)
    written = [match[1] for line in lines if (match := re.search(r"writes results/(\S+)\.md", line))]
    assert written == [table.name for table in TABLES]


def test_an_unknown_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("everything", "kernels/none", "replay/none"):
        with pytest.raises(SystemExit):
            command.main([name])
        assert name in capsys.readouterr().err


@pytest.mark.parametrize("table", [table for table in TABLES if table.inputs], ids=lambda table: table.name)
def test_a_table_without_its_inputs_says_so_and_writes_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogue, "RESULTS", tmp_path)
    for variable in KNOWN_INPUTS:
        monkeypatch.delenv(variable, raising=False)
    assert command.main([table.name]) == 1
    said = capsys.readouterr().err
    assert f"{table.name} skipped" in said
    assert [variable for variable in table.inputs if f"set {variable} to" not in said] == []
    assert not list(tmp_path.iterdir())


def test_an_input_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(study.REAL_TRACES, str(tmp_path / "none"))
    with pytest.raises(MissingInputError, match="doesn't exist"):
        find_input(study.REAL_TRACES)


def test_a_table_is_written_under_the_command_that_made_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(catalogue, "RESULTS", tmp_path)
    assert command.main(["kernels/vector_kernels"]) == 0
    text = (tmp_path / "kernels" / "vector_kernels.md").read_text()
    assert text.startswith("<!-- Written by `python -m tests.validation kernels/vector_kernels`")
    assert "| rtx-4090 |" in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_published_figures_cite_their_source(path: Path) -> None:
    table = study.read_published(path.stem)
    cited = set(study.read_published("sources")["source"])
    assert table["source"].null_count() == 0
    assert all(source in cited or re.search(r"[/.]", source) for source in table["source"].unique())


def test_errors_are_summed_up() -> None:
    assert study.format_errors([-10.0, 4.0, 6.0]) == ("+4 %", "6 %", "-10 %")


def test_results_are_summed_up_by_group() -> None:
    results = [study.Result("b", -10.0, False), study.Result("a", 4.0, True), study.Result("b", 6.0, True)]
    assert study.format_results(results).splitlines()[2:] == [
        "| a | 1 | 4.0 % | +4.0 % | +4.0 % | 1 of 1 |",
        "| b | 2 | 8.0 % | -10.0 % | +6.0 % | 1 of 2 |",
        "| all | 3 | 6.0 % | -10.0 % | +6.0 % | 2 of 3 |",
    ]


def test_a_table_is_markdown() -> None:
    assert study.format_table(("a", "b"), [("x", "1")]) == "| a | b |\n| --- | ---: |\n| x | 1 |\n"
