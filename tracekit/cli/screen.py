"""Where a verb's output goes: data to stdout or a file, talk and progress to stderr."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType

from tracekit import outputs
from tracekit.errors import OutputError

FILE_WIDTH = 140


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows the current stage on stderr, on a terminal only."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda stage: None
        return
    from tracekit.ingest.compiling import said

    with console.status("read trace") as status, said(status.update):
        yield status.update


def check_output(path: Path | None, force: bool, suffixes: Sequence[str], inputs: Sequence[str] = ()) -> None:
    """Refuse an output that can't be written, before the work is done.

    Args:
        path: Where to write.
        force: Whether a file there may be overwritten.
        suffixes: Those that name a format.
        inputs: What is read, which is never overwritten.

    Raises:
        OutputError: It exists already, is no file or an input, its directory doesn't exist, or its suffix names no
            format.
    """
    if path is None:
        return
    if path.suffix not in suffixes:
        raise OutputError(f"{path}: can't tell the format from {path.suffix!r}.", f"Known: {', '.join(suffixes)}.")
    outputs.check(path, force=force)
    if path.exists():
        from tracekit.ingest.source import files_of

        outputs.apart(path, files_of(inputs))


def emit(screen: RenderableType, as_json: Callable[[], str], *, json: bool) -> None:
    """Print the screen, or JSON in its place."""
    if json:
        print(as_json(), end="")  # noqa: T201
    else:
        Console().print(screen, soft_wrap=False)


def write(path: Path, content: str | bytes, quiet: bool) -> None:
    """Write a file, all or nothing, and say so.

    Raises:
        OutputError: It can't be written.
    """
    with outputs.whole(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    if not quiet:
        Console(stderr=True).print(f"Wrote {path}", highlight=False, markup=False)


def as_text(screen: RenderableType) -> str:
    """What a terminal would show, without colours."""
    console = Console(width=FILE_WIDTH, color_system=None)
    with console.capture() as capture:
        console.print(screen)
    return capture.get()
