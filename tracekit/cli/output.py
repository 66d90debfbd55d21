"""Output of commands: data to stdout or a file, messages and progress to stderr."""

from collections.abc import Callable, Sequence
from pathlib import Path

import typer
from rich.console import RenderableType

from tracekit import output_files
from tracekit.capturing.program_names import strip_function
from tracekit.errors import OutputError
from tracekit.escape import to_line
from tracekit.messages import command_errors
from tracekit.render.plain_text import PlainText, make_console


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
