"""Progress of a command on the terminal: its stages, the share that is done, and the time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from tracekit.messages import Message, ProgressCallback, Template, requests
from tracekit.render.screen import make_console
from tracekit.request.stage_plan import MEASURING, compute_share_done


@contextmanager
def show_progress(quiet: bool, *further: Template) -> Iterator[ProgressCallback]:
    """Yield a function that shows the current stage on stderr, on a terminal only.

    Args:
        quiet: Show nothing.
        further: The command's stages after those that measure a run.
    """
    console = make_console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda stage: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    from tracekit.compiled.announcing import announce_compilation

    plan = (*MEASURING, *further)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(str(requests.READING_TRACE()), total=1.0)

        def show(stage: Message) -> None:
            progress.update(task, description=str(stage), completed=compute_share_done(stage, plan))

        with announce_compilation(show):
            yield show
