"""Output of commands: data to stdout or a file, messages and progress to stderr."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from tracekit import output_files
from tracekit.errors import OutputError
from tracekit.messages import Message, ProgressCallback, command_errors
from tracekit.messages.stages import READING_TRACE

FILE_WIDTH_CHARS = 140


@contextmanager
def show_progress(quiet: bool) -> Iterator[ProgressCallback]:
    """Yield a function that shows the current stage on stderr, on a terminal only."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda stage: None
        return
    from tracekit.compiled.announcing import announce_compilation

    with console.status(str(READING_TRACE())) as status:

        def show(stage: Message) -> None:
            status.update(Text(str(stage)))

        with announce_compilation(show):
            yield show


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
    if path.suffix not in suffixes:
        raise OutputError(command_errors.OUTPUT_FORMAT_UNKNOWN(path=str(path), suffix=path.suffix, known=[*suffixes]))
    output_files.check_writable(path, force=force)
    if path.exists():
        from tracekit.ingest.source import list_local_files

        output_files.refuse_input_overwrite(path, list_local_files(inputs))


def emit(screen: RenderableType, as_json: Callable[[], str], *, json: bool) -> None:
    """Print the screen, or JSON instead."""
    if json:
        print(as_json(), end="")  # noqa: T201
    else:
        Console().print(screen, soft_wrap=False)


def write_file(path: Path, content: str | bytes, quiet: bool) -> None:
    """Write a file atomically, and print its path.

    Raises:
        OutputError: The file can't be written.
    """
    with output_files.write_atomically(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    if not quiet:
        Console(stderr=True).print(f"Wrote {path}", highlight=False, markup=False)


def as_text(screen: RenderableType) -> str:
    """Return the text that a terminal would show, without colours."""
    console = Console(width=FILE_WIDTH_CHARS, color_system=None)
    with console.capture() as capture:
        console.print(screen)
    return capture.get()
