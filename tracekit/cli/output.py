"""Output of commands: data to stdout or a file, messages and progress to stderr."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tracekit import output_files
from tracekit.capturing.program_names import strip_function
from tracekit.errors import OutputError
from tracekit.escape import to_line, to_lines
from tracekit.messages import command_errors

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


def say(text: str) -> None:
    """Print a line on stderr."""
    typer.echo(to_line(text), err=True)


def print_line(text: str) -> None:
    """Print a line on stdout."""
    typer.echo(to_line(text))


def check_output(path: Path | None, force: bool, suffixes: Sequence[str], inputs: Sequence[str] = ()) -> None:
    """Refuse an output that can't be written before the work starts.

    Args:
        path: The output file; ``None`` if there is none.
        force: Allow overwriting an existing file.
        suffixes: Suffixes of the known formats.
        inputs: Input files; they are never overwritten.

    Raises:
        OutputError: The file exists already, is no file or an input, its directory doesn't exist, or its suffix names
            no format.
    """
    if path is None:
        return
    output_files.refuse_standard_output(path)
    if path.suffix not in suffixes:
        raise OutputError(command_errors.OUTPUT_FORMAT_UNKNOWN(path=str(path), suffix=path.suffix, known=[*suffixes]))
    output_files.check_writable(path, force=force)
    if path.exists():
        from tracekit.ingest.source import list_local_files

        output_files.refuse_input_overwrite(path, list_local_files([*map(strip_function, inputs)]))


def emit(screen: RenderableType, as_json: Callable[[], str], *, json: bool) -> None:
    """Print the screen, or JSON instead."""
    if json:
        print(as_json(), end="")  # noqa: T201
    else:
        make_console().print(PlainText(screen), soft_wrap=False)


def write_file(path: Path, content: str | bytes, quiet: bool) -> None:
    """Write a file atomically, and print its path.

    Raises:
        OutputError: The file can't be written.
    """
    with output_files.write_atomically(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    if not quiet:
        say(f"Wrote {path}")


def as_text(screen: RenderableType) -> str:
    """Return the text that a terminal would show, without colours."""
    console = make_console(width=FILE_WIDTH_CHARS)
    with console.capture() as capture:
        console.print(PlainText(screen))
    return capture.get()
