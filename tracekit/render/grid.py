"""Tables without lines, for terminals."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

NUMBER_WIDTH = 7
LONGEST_FAMILY = len("elementwise")


def plain(gap: int = 2) -> Table:
    """A table without lines, its columns so many spaces apart."""
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


def grid(*columns: tuple[str, str]) -> Table:
    """A table without lines. Columns are a heading and ``number``, ``word`` (never cut) or ``text`` (cut to fit)."""
    table = plain()
    for heading, kind in columns:
        table.add_column(
            heading,
            justify="right" if kind == "number" else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width={"number": max(len(heading), NUMBER_WIDTH), "word": LONGEST_FAMILY, "text": 0}[kind],
        )
    return table


def and_more(table: Table, left_out: int, what: str) -> RenderableType:
    """A table, and what it leaves out."""
    return Group(table, Text(f"and {left_out} {what}", style="dim")) if left_out > 0 else table
