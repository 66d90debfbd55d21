"""``tracekit predict --engine``: predict a job rank by rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.cli.output import as_text, check_output, emit, write_file
from tracekit.cli.progress import show_progress
from tracekit.engine import open_engine
from tracekit.render import fleet as render
from tracekit.request import PredictRequest, answers

SUFFIXES = (".html", ".json", ".txt")


@dataclass(frozen=True, slots=True)
class FleetArguments:
    """The command line's arguments besides the traces and the request, as ``tracekit predict`` has them."""

    engine: str
    store: str | None
    top: int
    json: bool
    output: Path | None
    force: bool
    memory: str | None
    cache: bool
    quiet: bool


def predict_rank_by_rank(traces: Sequence[str], request: PredictRequest, given: FleetArguments) -> None:
    """Predict a job and show it.

    Raises:
        TracekitError: As :func:`tracekit.request.answers.predict_fleet`; or the output can't be written.
    """
    check_output(given.output, given.force, SUFFIXES, traces)
    with show_progress(given.quiet) as stage:
        engine = open_engine(given.engine)
        try:
            found = answers.predict_fleet(
                traces, request, engine, stage, store=given.store, cache=given.cache, memory=given.memory
            )
        finally:
            engine.close()
    screen = render.render_fleet(found, given.top)
    if given.output is not None:
        forms: dict[str, Callable[[], str]] = {
            ".html": lambda: render.render_fleet_page(found, given.top),
            ".json": lambda: render.dump_fleet(found),
            ".txt": lambda: as_text(screen),
        }
        write_file(given.output, forms[given.output.suffix](), given.quiet)
    emit(screen, lambda: render.dump_fleet(found), json=given.json)
