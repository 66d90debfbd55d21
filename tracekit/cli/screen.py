"""Where a verb's output goes: data to stdout or a file, talk and progress to stderr."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType

from tracekit.errors import OutputError

FILE_WIDTH = 140
SUFFIXES = (".json", ".txt")


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows the current stage on stderr, on a terminal only."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda stage: None
        return
    with console.status("read trace") as status:
        yield status.update


def check_output(path: Path | None, force: bool) -> None:
    """Refuse an output that can't be written, before the work is done.

    Raises:
        OutputError: It exists already, its directory doesn't, or its suffix names no format.
    """
    if path is None:
        return
    if path.suffix not in SUFFIXES:
        raise OutputError(f"{path}: can't tell the format from {path.suffix!r}.", f"Known: {', '.join(SUFFIXES)}.")
    if path.exists() and not force:
        raise OutputError(f"{path} exists already.", "Overwrite it with --force.")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: there is no directory {path.parent}.")


def emit(screen: RenderableType, as_json: Callable[[], str], *, json: bool, output: Path | None, quiet: bool) -> None:
    """Print one form, and write the output file's if there is one.

    Raises:
        OutputError: The file can't be written.
    """
    if json:
        print(as_json(), end="")  # noqa: T201
    else:
        Console().print(screen, soft_wrap=False)
    if output is not None:
        _write(output, as_json() if output.suffix == ".json" else _as_text(screen))
        if not quiet:
            Console(stderr=True).print(f"Wrote {output}", highlight=False)


def _as_text(screen: RenderableType) -> str:
    console = Console(width=FILE_WIDTH, color_system=None)
    with console.capture() as capture:
        console.print(screen)
    return capture.get()


def _write(path: Path, text: str) -> None:
    """All or nothing: a reader never sees half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OutputError(f"{path} can't be written: {error.strerror}.") from error
