"""Print screens as plain text: in the terminal, and in files."""

from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tracekit.escape import to_lines

FILE_WIDTH_CHARS = 140


class PlainText:
    """A screen in which no text acts on the terminal, whatever it holds, and no line ends in blanks; styles stay.

    Args:
        screen: What to print.
    """

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
