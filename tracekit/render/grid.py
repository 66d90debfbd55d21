"""Tables without lines, for terminals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

NUMBER_WIDTH = 7
LONGEST_FAMILY = len("elementwise")
SHORTEST_TEXT = 20


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a grid.

    Attributes:
        heading: What stands above it.
        kind: ``number``, ``word`` and ``mark`` (never cut nor left out; a mark is short) or ``text`` (cut to fit).
        least: Characters that it has at least.
    """

    heading: str
    kind: str
    least: int = 0


class Grid:
    """A table without lines that shows figures whole or not at all.

    Where the screen is too narrow, text is cut first; then numbers are left out from the right, and named below.
    """

    def __init__(self, columns: Sequence[Column], gap: int = 2) -> None:
        self._columns = columns
        self._gap = gap
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row, as plain text: no brackets in a kernel's name are taken for a style."""
        self._rows.append(tuple(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        widths = [self._width(at) for at in range(len(self._columns))]
        kept = self._kept(widths, options.max_width)
        cut = self._needed(kept, widths) - options.max_width
        table = plain(self._gap)
        for at in kept:
            column = self._columns[at]
            width = widths[at] - max(cut, 0) * (column.kind == "text")
            table.add_column(
                column.heading,
                justify="right" if column.kind == "number" else "left",
                width=width,
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in self._rows:
            table.add_row(*(row[at] for at in kept))
        yield table
        left_out = [column.heading for at, column in enumerate(self._columns) if at not in kept]
        if left_out:
            yield Text(f"left out at this width: {', '.join(left_out)}", style="dim")

    def _width(self, at: int) -> int:
        column = self._columns[at]
        return max(column.least, len(column.heading), *(row[at].cell_len for row in self._rows), 0)

    def _needed(self, kept: Sequence[int], widths: Sequence[int]) -> int:
        return sum(widths[at] for at in kept) + self._gap * (len(kept) - 1)

    def _kept(self, widths: Sequence[int], room: int) -> list[int]:
        """The columns that fit once text is as short as it may be."""
        kept = list(range(len(self._columns)))
        short = [
            min(width, SHORTEST_TEXT) if column.kind == "text" else width
            for column, width in zip(self._columns, widths, strict=True)
        ]
        numbers = [at for at in kept if self._columns[at].kind == "number"]
        while numbers and self._needed(kept, short) > room:
            kept.remove(numbers.pop())
        return kept


def plain(gap: int = 2) -> Table:
    """A table without lines, its columns so many spaces apart."""
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


def grid(*columns: tuple[str, str]) -> Grid:
    """A grid whose numbers and families stand below each other from table to table, of headings and kinds."""
    least = {"number": NUMBER_WIDTH, "word": LONGEST_FAMILY}
    return Grid([Column(heading, kind, least.get(kind, 0)) for heading, kind in columns])


def and_more(table: Grid, left_out: int, what: str) -> RenderableType:
    """A table, and what it leaves out."""
    return Group(table, Text(f"and {left_out} {what}", style="dim")) if left_out > 0 else table
