"""Figures that rows and sentences of the docs quote are in the measured tables that they link to."""

import re

import pytest

from docs.site import accuracy
from docs.site.accuracy import (
    StaleBlockError,
    check_blocks,
    find_lines,
    read_each,
    read_summary,
    read_tables,
    write_blocks,
)
from docs.site.markdown import make_anchor
from docs.site.pages import ROOT

WRITTEN = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
RESULT = re.compile(r"\]\(([^)\s]*tests/validation/results/[^)\s]+)\)")
FIGURE = re.compile(r"(?<![\w.])[-+]?(\d+(?:,\d{3})*(?:\.\d+)?)(?![\w.]*\w)")


def list_quotes():
    """Rows of tables, and sentences, that link to a measured table."""
    for page in WRITTEN:
        rows, prose = [], []
        for line in page.read_text().splitlines():
            (rows if line.startswith("|") else prose).append(line)
        for quote in (*rows, *re.split(r"(?<=[.:])\s+(?=[^\s(])", "\n".join(prose))):
            if RESULT.search(quote):
                yield pytest.param(page, quote, id=f"{page.stem}: {re.sub(r'[^ a-zA-Z]+', '', quote)[:40].strip()}")


def read_section(page, target):
    """Return a measured table, or the section of it that a link names."""
    path, _, anchor = target.partition("#")
    text = (page.parent / path).read_text()
    if not anchor:
        return text
    sections = re.split(r"(?m)^(?=#+ )", text)
    (section,) = (one for one in sections if make_anchor(one.splitlines()[0]) == anchor)
    return section


def read_figures(text):
    return [float(figure.replace(",", "")) for figure in FIGURE.findall(text)]


def read_quoted_figures(quote):
    """Return the figures of cells or sentences that quote percentages, with the decimals that they are quoted to."""
    for cell in re.sub(r"\]\([^)]*\)", "]", quote).split("|"):
        if re.search(r"\s%", cell):
            for text in FIGURE.findall(cell):
                yield float(text.replace(",", "")), len(text.partition(".")[2])


@pytest.mark.parametrize(("page", "quote"), [*list_quotes()])
def test_a_quoted_figure_is_in_the_measured_table(page, quote):
    tables = [read_figures(read_section(page, target)) for target in RESULT.findall(quote)]
    measured = [figure for table in tables for figure in table]
    missing = [
        figure
        for figure, decimals in read_quoted_figures(quote)
        if not any(abs(one - figure) <= 0.5001 * 10**-decimals for one in measured)
    ]
    assert not missing, f"{page.relative_to(ROOT)}: {quote}"


def test_quoted_blocks_are_as_the_results_say():
    check_blocks()


def test_a_block_that_quotes_older_results_is_named_and_written_anew(tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- generated: accuracy-in-short -->\n| 7 % |\n<!-- end -->\nafter\n")
    results = tmp_path / accuracy.RESULTS
    results.parent.mkdir(parents=True)
    results.symlink_to(ROOT / accuracy.RESULTS)
    monkeypatch.setattr(accuracy, "ROOT", tmp_path)
    monkeypatch.setattr(accuracy, "PAGES", ("README.md",))
    with pytest.raises(StaleBlockError, match=r"README.md .* `python -m docs.site.accuracy`"):
        check_blocks()
    write_blocks()
    check_blocks()
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert len(lines) == 4 + 2 + sum(one.is_short for one in accuracy.QUOTES)


TABLE = """| kind | GPU | jobs | median | worst | in | width | in |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| a | h100 | 4 | 6 / 31 % | +9% | 3 | 1.2 | 75 % |
| a | a100 | 8 | 2 / 5 % | -7% | 8 |  | 100 % |
"""


def test_a_results_table_is_read_by_headings():
    (lines,) = read_tables(f"text\n\n{TABLE}\nmore | text\n")
    assert [line["GPU"] for line in lines] == ["h100", "a100"]
    assert (lines[0]["in"], lines[0]["in 2"]) == ("3", "75 %")
    assert read_summary("median", "worst", "in", count="jobs", width="width")(lines[:1]) == (
        "6 / 31 %", "+9 %", "3 of 4, 1.2 wide",
    )  # fmt: skip
    assert read_summary("median", "", "width")(lines[1:]) == ("2 / 5 %", "–", "–")


def test_lines_of_single_predictions_are_summed_up():
    lines = [
        {"error": error, "inside": inside} for error, inside in (("-31.4 %", "no"), ("+3 %", "yes"), ("+8 %", "yes"))
    ]
    assert read_each("error", "inside")(lines) == ("8 %", "-31 %", "2 of 3")


def test_a_line_that_no_result_has_is_named():
    with pytest.raises(ValueError, match="trace_pairs has no line 'bound by tea'"):
        find_lines("whole_jobs/trace_pairs", "bound by tea")
