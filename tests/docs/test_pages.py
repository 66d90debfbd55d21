"""The links of the pages of docs/ lead somewhere, and the commands they quote exist."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from docs.site.markdown import make_anchor
from docs.site.pages import PAGES
from tracekit.cli.app import app, is_input
from tracekit.messages import Severity
from tracekit.messages.catalogue import CATALOGUE
from tracekit.whatif import EDITS

ROOT = Path(__file__).parents[2]
WRITTEN = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
VALIDATION = sorted(ROOT.glob("tests/validation/**/*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^    tracekit (.+?)(?:  +#.*)?$", re.MULTILINE)
GENERATED = {Path(name).name for name in PAGES}


def anchors(page):
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    return {make_anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def quoted_commands():
    for page in WRITTEN:
        for match in COMMAND.finditer(page.read_text().replace("\\\n", " ")):
            yield pytest.param(match.group(1), id=f"{page.stem}: {match.group(1)[:50]}")


@pytest.mark.parametrize("page", [*WRITTEN, *VALIDATION], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_resolve(page):
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    broken = []
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", path) or Path(path).name in GENERATED:
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("line", list(quoted_commands()))
def test_quoted_commands_parse(line):
    name, *arguments = shlex.split(re.split(r" (?:[|>]|&&) ", line)[0])
    if is_input(name):
        name, arguments = "report", [name, *arguments]
    assert typer.main.get_command(app).commands[name].make_context(name, arguments).params


def test_tutorial_quotes_the_figures_that_the_command_prints(tmp_path):
    page = (ROOT / "docs/tutorial/first-prediction.md").read_text()
    command = re.search(r"^    tracekit (predict .*)$", page, re.MULTILINE).group(1)
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "XDG_DATA_HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-m", "tracekit", *shlex.split(command)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    figures = re.compile(r"\d[\d.,–]*\d")
    quoted = [figure for block in re.findall(r"(?ms)^```text\n(.*?)^```", page) for figure in figures.findall(block)]
    assert quoted
    assert set(quoted) - set(figures.findall(run.stdout)) == set()


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["python", "what-if"])
def test_quoted_python_runs(name, tmp_path):
    page = (ROOT / f"docs/how-to/{name}.md").read_text()
    code = "\n".join(re.findall(r"(?ms)^```python\n(.*?)^```", page))
    for file in ("trace", "before", "after"):
        (tmp_path / f"{file}.json.gz").symlink_to(ROOT / "sample_traces/synthetic_transformer_train.json.gz")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)


def test_page_of_findings_names_all():
    page = (ROOT / "docs/reference/findings.md").read_text()
    codes = [code for code, one in CATALOGUE.items() if one.severity == Severity.FINDING and "sweep" not in code]
    assert codes
    assert [code for code in codes if f"`{code}`" not in page] == []


def test_page_of_edits_has_a_row_for_each():
    page = (ROOT / "docs/how-to/what-if.md").read_text()
    assert EDITS
    assert [name for name in EDITS if f"| `{name}(" not in page] == []


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_explain_every_row(name):
    rows = [line for line in PAGES[name]().splitlines() if re.match(r"\| [`\[]", line)]
    if name != "reference/python.md":  # mkdocstrings writes it
        assert rows
    meaning = 2 if name in ("reference/messages.md", "reference/json.md", "reference/tables.md") else 1
    unexplained = [row for row in rows if not re.split(r"(?<!\\)\|", row)[1:-1][meaning].strip()]
    assert not [row for row in unexplained if name not in ("reference/gpus.md", "reference/clusters.md")]
