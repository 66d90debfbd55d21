"""Figures that tables of the docs quote are in the measured tables that their rows link to."""

import re
from pathlib import Path

import pytest

from docs.site.pages import ROOT

WRITTEN = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
RESULT = re.compile(r"\]\(([^)\s]*tests/validation/results/[^)\s]+)\)")
FIGURE = re.compile(r"(?<![\w.])[-+]?(\d+(?:,\d{3})*(?:\.\d+)?)(?![\w.]*\w)")


def list_rows():
    for page in WRITTEN:
        for line in page.read_text().splitlines():
            if line.startswith("|") and RESULT.search(line):
                yield pytest.param(page, line, id=f"{page.stem}: {re.sub(r'[^ a-zA-Z]+', '', line)[:40].strip()}")


def read_section(page, target):
    """Return a measured table, or the section of it that a link names."""
    path, _, anchor = target.partition("#")
    text = (page.parent / path).read_text()
    if not anchor:
        return text
    sections = re.split(r"(?m)^(?=#+ )", text)
    (section,) = (one for one in sections if slug(one.splitlines()[0]) == anchor)
    return section


def slug(heading):
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def read_figures(text):
    return [float(figure.replace(",", "")) for figure in FIGURE.findall(text)]


def quoted_figures(line):
    """Return the figures of the cells that quote percentages, with the decimals that they are quoted to."""
    cells = [re.sub(r"\]\([^)]*\)", "]", cell) for cell in line.split("|")]
    for cell in cells:
        if " %" in cell:
            for text in FIGURE.findall(cell):
                yield float(text.replace(",", "")), len(text.partition(".")[2])


@pytest.mark.parametrize(("page", "line"), [*list_rows()])
def test_a_quoted_figure_is_in_the_measured_table(page, line):
    tables = [read_figures(read_section(page, target)) for target in RESULT.findall(line)]
    measured = [figure for table in tables for figure in table]
    missing = [
        figure
        for figure, decimals in quoted_figures(line)
        if not any(abs(one - figure) <= 0.5001 * 10**-decimals for one in measured)
    ]
    assert not missing, f"{Path(page).relative_to(ROOT)}: {line}"
