"""What screens are made of: tables without lines, facts, bars, and plain text that acts on no terminal."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.color import Color, ColorSystem
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tracekit.escape import to_line, to_lines
from tracekit.format import format_duration, format_percent
from tracekit.render.colours import get_family_colour
from tracekit.reporting.sections.step import TimeBar, list_parts

MIN_NUMBER_CHARS = 7
MIN_WORD_CHARS = len("elementwise")
MIN_TEXT_CHARS = 16
TIME_CHARS, SHARE_CHARS = len("1,234 ms"), len("12.3 %")


ColumnKind = Literal["number", "cost", "figure", "word", "detail", "mark", "text"]


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A column of a grid.

    Attributes:
        kind: ``number`` or ``detail``, of words (dropped if it doesn't fit); ``cost`` (dropped after these);
            ``figure``, ``word`` or ``mark`` (never cut or dropped; a mark is short); or ``text`` (cut to fit).
        min_width: Minimum width in characters.
    """

    heading: str
    kind: ColumnKind
    min_width: int = 0

    @property
    def is_numeric(self) -> bool:
        """Whether it is aligned to the right."""
        return self.kind in ("number", "cost", "figure")


class Grid:
    """A table without lines that shows each number either completely or not at all.

    Where the screen is too narrow, text columns are cut first. Then numbers and details are dropped from the right,
    after them costs, and their headings are named below the table. Where even the others don't fit, each row becomes
    lines of its own, with all columns.
    """

    def __init__(self, columns: Sequence[GridColumn], gap: int = 2) -> None:
        self._columns = columns
        self._gap = gap
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row of plain text: brackets in a kernel's name are not parsed as rich markup."""
        self._rows.append(tuple(Text(to_line(cell)) if isinstance(cell, str) else cell for cell in cells))

    def shows_costs(self, room: int) -> bool:
        """Return whether all costs fit into so many characters."""
        widths = [self._measure_width(at) for at in range(len(self._columns))]
        kept = self._select_columns(widths, room) or ()
        return all(at in kept for at, column in enumerate(self._columns) if column.kind == "cost")

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
        droppable = [
            at for kinds in (("cost",), ("number", "detail")) for at in kept if self._columns[at].kind in kinds
        ]
        while droppable and self._sum_widths(kept, short) > room:
            kept.remove(droppable.pop())
        return kept if self._sum_widths(kept, short) <= room else None


@dataclass(frozen=True, slots=True)
class GridWithShortForm:
    """A grid, and the form of it with shorter cells for screens on which not all of its costs fit."""

    full: Grid
    short: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self.full if self.full.shows_costs(options.max_width) else self.short


def make_plain_table(gap: int = 2) -> Table:
    """Make a table without lines, with ``gap`` spaces between columns."""
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of a screen whose first column stands out.

    Attributes:
        right: Headings of the columns of numbers.
    """

    headings: Sequence[str]
    rows: Iterable[Sequence[str | Text]]
    right: Sequence[str] = ()

    def __rich__(self) -> Table:
        table = make_plain_table(gap=1)
        for place, heading in enumerate(self.headings):
            is_right = heading in self.right
            table.add_column(
                heading,
                justify="right" if is_right else "left",
                style="" if place else "bold",
                no_wrap=is_right or not place,
            )
        for row in self.rows:
            table.add_row(*(Text(to_line(cell)) if isinstance(cell, str) else cell for cell in row))
        return table


@dataclass(frozen=True, slots=True)
class Screen:
    """What a command prints: a title, facts, tables, and what they mean; each as far as it is there.

    Attributes:
        facts: Label and text of each.
        notes: What to know of them.
    """

    title: str = ""
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[RenderableType] = ()
    notes: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if self.title:
            yield Text(to_line(self.title), "bold")
        if self.facts:
            yield make_facts_table(*self.facts, label_chars=max(len(label) for label, _ in self.facts))
        yield from self.tables
        yield from (Text(to_line(note), "dim") for note in self.notes)


def make_grid(*columns: tuple[str, ColumnKind]) -> Grid:
    """Make a grid from (heading, kind) pairs, with minimum widths that align consecutive tables."""
    least = dict.fromkeys(("number", "cost", "figure"), MIN_NUMBER_CHARS) | dict.fromkeys(
        ("word", "detail"), MIN_WORD_CHARS
    )
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


def append_omitted_count(table: RenderableType, left_out: int, what: str) -> RenderableType:
    """Append a line with the number of rows left out."""
    return Group(table, Text(f"and {left_out} {what}", style="dim")) if left_out > 0 else table


def render_card(title: str, figures: Iterable[tuple[str, str, str | None]], sources: Iterable[str]) -> RenderableType:
    """Render one row per figure, with the number of its source listed below.

    Args:
        title: Heading of the card.
        figures: (name, value, source) of each figure; the source is one of ``sources`` or ``None``.
        sources: All sources; duplicates are listed once.
    """
    numbers = {source: f"[{number}]" for number, source in enumerate(dict.fromkeys(sources), start=1)}
    rows = Table(box=None, pad_edge=False, show_header=False)
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_column(style="dim", no_wrap=True)
    for name, value, source in figures:
        rows.add_row(to_line(name), to_line(value), Text(numbers[source] if source else ""))
    cited = (Text(to_line(f"{number} {source}"), "dim") for source, number in numbers.items())
    return Group(Text(to_line(title), "bold"), rows, *cited)


FILE_WIDTH_CHARS = 140


class PlainText:
    """A screen in which no text acts on the terminal, whatever it holds, and no line ends in blanks; styles stay."""

    def __init__(self, screen: RenderableType) -> None:
        self._screen = screen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        plain = (
            segment if segment.control else Segment(to_lines(segment.text), segment.style)
            for segment in console.render(self._screen, options)
        )
        for line in Segment.split_lines(plain):
            yield from _strip_end(line)
            yield Segment.line()


def _strip_end(line: Sequence[Segment]) -> Iterator[Segment]:
    """Yield a line without the blanks at its end, which nobody wants to copy."""
    last = max((at for at, segment in enumerate(line) if segment.control or segment.text.strip(" ")), default=-1)
    yield from line[:last]
    for segment in line[last : last + 1]:
        yield segment if segment.control else Segment(segment.text.rstrip(" "), segment.style)


def make_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Make a console that prints brackets and colons as they are; one of a given width has no colours."""
    colours: Literal["auto"] | None = "auto" if width is None else None
    return Console(stderr=stderr, width=width, color_system=colours, markup=False, emoji=False)


def as_text(screen: RenderableType) -> str:
    """Return the text that a terminal would show, without colours."""
    console = make_console(width=FILE_WIDTH_CHARS)
    with console.capture() as capture:
        console.print(PlainText(screen))
    return capture.get()


MAX_BAR_CHARS = 50
MIN_VISIBLE_FRACTION = 0.02
SHADES, IDLE_SHADE, REST_SHADE = "█▓▒▚▄▌▞▀▐▙▗▟▖▜▘▛", "░", "·"
PLAIN_SHADES, PLAIN_IDLE_SHADE, PLAIN_REST_SHADE = "#@%*+=oxsnvcwzua", "-", "."
"""Where the screen's encoding lacks the others."""
RESTS = (REST_SHADE, PLAIN_REST_SHADE)
MIN_REST_FRACTION = 0.005
"""Of a step: half a character of the longest bar is 0.01."""
REST = "others"
"""Parts too small to be told apart."""
COLOUR_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
    "windows": ColorSystem.WINDOWS,
}


@dataclass(frozen=True, slots=True)
class TimeBars:
    """Bars on one common scale that fits the screen, with a legend of their colours."""

    bars: Sequence[TimeBar]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        longest = max(bar.step_time_us for bar in self.bars) or 1.0
        label = max(len(bar.label) for bar in self.bars)
        figure = max(len(format_duration(bar.step_time_us)) for bar in self.bars)
        cells = max(min(MAX_BAR_CHARS, options.max_width - label - figure - 2), 1)
        signs = _choose_fill_characters(self.bars, console)
        yield from (_draw_bar(bar, cells / longest, label, signs) for bar in self.bars)
        yield from _draw_legend(self.bars, signs, options.max_width)


def _choose_fill_characters(bars: Sequence[TimeBar], console: Console) -> dict[str, str]:
    """Choose the fill character of each part: parts that this terminal shows in one colour get different shades."""
    shades, idle, rest = (SHADES, IDLE_SHADE, REST_SHADE)
    if not _can_encode(SHADES, console.encoding):
        shades, idle, rest = (PLAIN_SHADES, PLAIN_IDLE_SHADE, PLAIN_REST_SHADE)
    alike: Counter[object] = Counter()
    signs = {}
    for part in list_parts(bars):
        if not _is_visible(part, bars):
            signs[part] = rest
        elif part == "idle":
            signs[part] = idle
        else:
            colour = _find_shown_colour(part, console)
            signs[part] = shades[alike[colour] % len(shades)]
            alike[colour] += 1
    return signs


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _is_visible(part: str, bars: Sequence[TimeBar]) -> bool:
    """Return whether a part is large enough in some bar to be told apart."""
    return any(_compute_share(part, bar) >= MIN_VISIBLE_FRACTION for bar in bars)


def _compute_share(part: str, bar: TimeBar) -> float:
    return sum(time_us for family, time_us in bar.parts if family == part) / (bar.step_time_us or 1.0)


def _find_shown_colour(part: str, console: Console) -> tuple[str, ...] | None:
    """Return the codes by which a terminal shows a part's colour; None without colours."""
    if console.no_color or console.color_system is None:
        return None
    return Color.parse(get_family_colour(part)).downgrade(COLOUR_SYSTEMS[console.color_system]).get_ansi_codes()


def _draw_bar(bar: TimeBar, cells_per_us: float, label_width: int, signs: Mapping[str, str]) -> Text:
    # Rich's own bars have a single part.
    text = Text(f"{bar.label:<{label_width}} ", no_wrap=True)
    covered = drawn = 0.0
    for family, time_us in bar.parts:
        covered += time_us * cells_per_us
        cells = round(covered - drawn)
        text.append(signs[family] * cells, style=get_family_colour(family if signs[family] not in RESTS else REST))
        drawn += cells
    return text.append(f" {format_duration(bar.step_time_us)}")


def _draw_legend(bars: Sequence[TimeBar], signs: Mapping[str, str], width: int) -> Iterator[Text]:
    """Yield the legend: every sign, with the share of what it stands for in the first bar; no entry is split."""
    told = {(sign, part): _compute_share(part, bars[0]) for part, sign in signs.items() if sign not in RESTS}
    rest = [(sign, part) for part, sign in signs.items() if sign in RESTS]
    if any(sum(_compute_share(part, bar) for _, part in rest) >= MIN_REST_FRACTION for bar in bars):
        told[rest[0][0], REST] = sum(_compute_share(part, bars[0]) for _, part in rest)
    line = Text(f"{bars[0].label}: ", style="dim")
    for (sign, name), share in told.items():
        entry = Text.assemble((f"{sign} ", get_family_colour(name)), f"{name} {format_percent(100 * share)}")
        if line.cell_len + entry.cell_len > width:
            yield line
            line = Text("  ")
        line = Text.assemble(line, entry, "   ")
    yield line
