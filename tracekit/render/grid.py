"""Tables without lines for terminals."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracekit.escape import to_line
from tracekit.format import format_duration, format_percent

MIN_NUMBER_CHARS = 7
MIN_WORD_CHARS = len("elementwise")
MIN_TEXT_CHARS = 16
TIME_CHARS, SHARE_CHARS = len("1,234 ms"), len("12.3 %")


ColumnKind = Literal["number", "figure", "word", "detail", "mark", "text"]


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A column of a grid.

    Attributes:
        heading: Text of the heading.
        kind: ``number`` or ``detail``, of words (dropped if it doesn't fit); ``figure``, ``word`` or ``mark`` (never
            cut or dropped; a mark is short); or ``text`` (cut to fit).
        min_width: Minimum width in characters.
    """

    heading: str
    kind: ColumnKind
    min_width: int = 0

    @property
    def is_numeric(self) -> bool:
        """Whether it is aligned to the right."""
        return self.kind in ("number", "figure")

    @property
    def may_be_dropped(self) -> bool:
        """Whether a narrow screen goes without it."""
        return self.kind in ("number", "detail")


class Grid:
    """A table without lines that shows each number either completely or not at all.

    Where the screen is too narrow, text columns are cut first. Then numbers and details are dropped from the right, and
    their headings are named below the table. Where even the others don't fit, each row becomes lines of its own, with
    all columns.
    """

    def __init__(self, columns: Sequence[GridColumn], gap: int = 2) -> None:
        self._columns = columns
        self._gap = gap
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row of plain text: brackets in a kernel's name are not parsed as rich markup."""
        self._rows.append(tuple(Text(to_line(cell)) if isinstance(cell, str) else cell for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        widths = [self._measure_width(at) for at in range(len(self._columns))]
        kept = self._select_columns(widths, options.max_width)
        if kept is None:
            yield from self._render_rows_as_lines()
            return
        cut = self._sum_widths(kept, widths) - options.max_width
        table = make_plain_table(self._gap)
        for at in kept:
            column = self._columns[at]
            width = widths[at] - max(cut, 0) * (column.kind == "text")
            table.add_column(
                column.heading,
                justify="right" if column.is_numeric else "left",
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

    def _render_rows_as_lines(self) -> Iterator[RenderableType]:
        """Yield each row as its first cell, and the others with their headings below."""
        for first, *rest in self._rows:
            cells = [
                Text.assemble(f"{column.heading} ", cell) if column.kind != "text" else cell
                for column, cell in zip(self._columns[1:], rest, strict=True)
                if cell.plain.strip()
            ]
            yield first if not self._columns[0].heading else Text.assemble(f"{self._columns[0].heading} ", first)
            yield Padding(Text(", ").join(cells), (0, 0, 0, 2))

    def _measure_width(self, at: int) -> int:
        column = self._columns[at]
        return max(column.min_width, len(column.heading), *(row[at].cell_len for row in self._rows), 0)

    def _sum_widths(self, kept: Sequence[int], widths: Sequence[int]) -> int:
        return sum(widths[at] for at in kept) + self._gap * (len(kept) - 1)

    def _select_columns(self, widths: Sequence[int], room: int) -> list[int] | None:
        """Select the columns that fit once text columns have their minimum width; None where too few do."""
        kept = list(range(len(self._columns)))
        short = [
            min(width, MIN_TEXT_CHARS) if column.kind == "text" else width
            for column, width in zip(self._columns, widths, strict=True)
        ]
        droppable = [at for at in kept if self._columns[at].may_be_dropped]
        while droppable and self._sum_widths(kept, short) > room:
            kept.remove(droppable.pop())
        return kept if self._sum_widths(kept, short) <= room else None


def make_plain_table(gap: int = 2) -> Table:
    """Make a table without lines, with ``gap`` spaces between columns."""
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


def make_grid(*columns: tuple[str, ColumnKind]) -> Grid:
    """Make a grid from (heading, kind) pairs, with minimum widths that align consecutive tables."""
    least = dict.fromkeys(("number", "figure"), MIN_NUMBER_CHARS) | dict.fromkeys(("word", "detail"), MIN_WORD_CHARS)
    return Grid([GridColumn(heading, kind, least.get(kind, 0)) for heading, kind in columns])


def make_facts_table(*facts: tuple[str, str], label_chars: int) -> Table:
    """Make one row per (label, text); a text that is folded stays right of its label."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(style="bold", no_wrap=True, min_width=label_chars)
    table.add_column(overflow="fold")
    for label, text in facts:
        table.add_row(label, Text(to_line(text)))
    return table


def make_time_list(rows: Iterable[tuple[float, float, Text]]) -> Table:
    """Make one line per (time in microseconds, its percentage, what takes it)."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True, min_width=TIME_CHARS)
    table.add_column(justify="right", no_wrap=True, min_width=SHARE_CHARS)
    table.add_column(overflow="fold")
    for time_us, share, what in rows:
        table.add_row(format_duration(time_us), format_percent(share), what)
    return table


def append_omitted_count(table: Grid, left_out: int, what: str) -> RenderableType:
    """Append a line with the number of rows left out."""
    return Group(table, Text(f"and {left_out} {what}", style="dim")) if left_out > 0 else table
