"""Progress of a command on the terminal: its stages, the share that is done, and the time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from tracekit.cli.output import make_console
from tracekit.messages import Message, ProgressCallback, Template, stages

Plan = tuple[Template, ...]

MEASURING: Plan = (
    stages.READING_TRACE,
    stages.CLASSIFYING_KERNELS,
    stages.LINKING_DEPENDENCIES,
    stages.REPLAYING,
)
"""The stages of most commands."""

EFFORTS = {
    stages.READING_TRACE: 5,
    stages.READING_FILE: 5,
    stages.CLASSIFYING_KERNELS: 1,
    stages.LINKING_DEPENDENCIES: 1.5,
    stages.REPLAYING: 1,
    stages.CAPTURING: 5,
    stages.PREDICTING: 6,
    stages.PREDICTING_TARGET: 6,
    stages.PREDICTING_LAYOUTS: 12,
    stages.BUILDING_REPORT: 4,
    stages.EXAMINING: 4,
    stages.REDACTING: 5,
}
"""How long stages take, relative to each other, on traces of 8 to 60 MB."""
SAME_STAGE = {stages.READING_FILE: stages.READING_TRACE, stages.PREDICTING_TARGET: stages.PREDICTING}
"""Stages that count what they have done, by those of a plan that they stand for."""
COUNTS = {stages.READING_FILE: "files", stages.PREDICTING_TARGET: "targets"}


@contextmanager
def show_progress(quiet: bool, *further: Template) -> Iterator[ProgressCallback]:
    """Yield a function that shows the current stage on stderr, on a terminal only.

    Args:
        quiet: Show nothing.
        further: The command's stages after :data:`MEASURING`.
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
        task = progress.add_task(str(stages.READING_TRACE()), total=1.0)

        def show(stage: Message) -> None:
            progress.update(task, description=str(stage), completed=compute_share_done(stage, plan))

        with announce_compilation(show):
            yield show


def compute_share_done(stage: Message, plan: Plan) -> float | None:
    """Return the fraction of the work that is done as a stage begins; None for a stage that isn't planned.

    Args:
        stage: The stage; one that counts files or targets begins anew for each.
        plan: All stages, in order.
    """
    planned = SAME_STAGE.get(stage.template, stage.template)
    if planned not in plan:
        return None
    efforts = [EFFORTS[one] for one in plan]
    place = plan.index(planned)
    begun = sum(efforts[:place])
    if stage.template in COUNTS:
        count, number = stage.values[COUNTS[stage.template]], stage.values["number"]
        assert isinstance(count, int)
        assert isinstance(number, int)
        begun += efforts[place] * (number - 1) / count
    return begun / sum(efforts)
