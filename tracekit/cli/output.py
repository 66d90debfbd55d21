"""Output of commands: data to stdout or a file, messages and progress to stderr."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer
from rich.console import RenderableType

from tracekit import output_files
from tracekit.capturing.program_names import strip_function
from tracekit.errors import OutputError
from tracekit.escape import to_line
from tracekit.messages import front_ends
from tracekit.render.screen import PlainText, make_console


def say(text: str) -> None:
    """Print a line on stderr."""
    typer.echo(to_line(text), err=True)


def print_line(text: str) -> None:
    """Print a line on stdout."""
    typer.echo(to_line(text))


def check_outputs(
    paths: Sequence[Path] | None, force: bool, suffixes: Sequence[str] | None, inputs: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Refuse outputs if one can't be written, before the work starts; return them, each once.

    Args:
        paths: The output files, if any.
        force: Allow overwriting existing files.
        suffixes: Suffixes of the known formats; None where any will do.
        inputs: Input files; they are never overwritten.

    Raises:
        OutputError: A file exists already, is no file or an input, its directory doesn't exist, or its suffix names no
            format.
    """
    found = drop_repeated(paths or ())
    for path in found:
        _check_output(path, force, suffixes, inputs)
    return found


def drop_repeated(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return paths without those that lead where an earlier one does."""
    return tuple({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]


def take_one_output(paths: Sequence[Path] | None) -> Path | None:
    """Return the output of a command that writes to one place.

    Raises:
        OutputError: Several are named.
    """
    found = drop_repeated(paths or ())
    if len(found) > 1:
        raise OutputError(front_ends.OUTPUT_SEVERAL(paths=[str(path) for path in found]))
    return found[0] if found else None


def _check_output(path: Path, force: bool, suffixes: Sequence[str] | None, inputs: Sequence[str]) -> None:
    output_files.refuse_standard_output(path)
    if suffixes is not None and path.suffix not in suffixes:
        raise OutputError(front_ends.OUTPUT_FORMAT_UNKNOWN(path=str(path), suffix=path.suffix, known=[*suffixes]))
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


def write_files(contents: Mapping[Path, str | bytes], quiet: bool) -> None:
    """Write files, all or none, and print their paths.

    Raises:
        OutputError: A file can't be written.
    """
    output_files.write_together(
        {path: content.encode() if isinstance(content, str) else content for path, content in contents.items()}
    )
    for path in () if quiet else contents:
        say(f"Wrote {path}")
