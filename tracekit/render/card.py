"""Render all figures of one object, each with its source."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.escape import to_line


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
