"""Figures that rows and sentences of the docs quote are in the measured tables that they link to."""

import re

import pytest

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
    (section,) = (one for one in sections if slug(one.splitlines()[0]) == anchor)
    return section


def slug(heading):
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


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
