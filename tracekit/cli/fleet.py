"""``tracekit predict --engine``: predict a job rank by rank."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from tracekit.cli.options import OutputFormat
from tracekit.cli.output import emit, write_files
from tracekit.cli.progress import show_progress
from tracekit.cli.report_output import settle_outputs
from tracekit.engine import open_engine
from tracekit.errors import RequestError
from tracekit.fleet import FleetReport
from tracekit.fleet.options import FLEET_OPTIONS
from tracekit.messages import fleets, name_option
from tracekit.render import fleet as render
from tracekit.render.private_details import remove_details
from tracekit.render.screen import as_text
from tracekit.request import PredictRequest, answers

FORMS = (OutputFormat.HTML, OutputFormat.JSON, OutputFormat.TXT)


@dataclass(frozen=True, slots=True)
class FleetArguments:
    """The command line's arguments besides the traces and the request, as ``tracekit predict`` has them."""

    engine: str
    store: str | None
    top: int
    json: bool
    form: OutputFormat | None
    output: Sequence[Path] | None
    force: bool
    with_details: bool
    no_cache: bool
    memory: str | None
    verbose: bool
    quiet: bool


HONOURED = FLEET_OPTIONS | set(FleetArguments.__dataclass_fields__) | {"traces", "strict"}
"""Parameters of the command that a prediction rank by rank has; all others are refused."""


def refuse_other_options(invocation: typer.Context) -> None:
    """Refuse what a prediction rank by rank would ignore.

    Raises:
        RequestError: The command line or the configuration has such an option.
    """
    for name in invocation.params:
        source = invocation.get_parameter_source(name)
        if name not in HONOURED and source is not None and source.name != "DEFAULT":
            raise RequestError(fleets.FLEET_OPTION(option=name_option(name.replace("_", "-"))))


def predict_rank_by_rank(traces: Sequence[str], request: PredictRequest, given: FleetArguments) -> FleetReport:
    """Predict a job and show it.

    Raises:
        TracekitError: As :func:`tracekit.request.answers.predict_fleet`; or the output can't be written.
    """
    if given.form not in (None, *FORMS):
        raise RequestError(fleets.FLEET_OPTION(option=f"{name_option('format')} {given.form}"))
    to = settle_outputs(
        given.form,
        given.output,
        given.force,
        traces,
        json=given.json,
        forms=FORMS,
        standard_form=OutputFormat.TXT,
    )
    with show_progress(given.quiet) as stage:
        engine = open_engine(given.engine)
        try:
            found = answers.predict_fleet(
                traces, request, engine, stage, store=given.store, cache=not given.no_cache, memory=given.memory
            )
        finally:
            engine.close()
    shared = found if given.with_details else remove_details(found)
    renderers = _make_renderers(shared, given.top)
    write_files({path: renderers[form]() for path, form in to.files.items()}, given.quiet)
    if to.printed in (OutputFormat.TXT, OutputFormat.JSON):
        is_json = to.printed is OutputFormat.JSON
        screen = render.render_fleet(found, given.top, all_notes=given.verbose)
        emit(screen, lambda: render.dump_fleet(found), json=is_json)
    else:
        sys.stdout.write(renderers[to.printed]())
    return found


def _make_renderers(found: FleetReport, top: int) -> Mapping[OutputFormat, Callable[[], str]]:
    return {
        OutputFormat.HTML: lambda: render.render_fleet_page(found, top),
        OutputFormat.JSON: lambda: render.dump_fleet(found),
        OutputFormat.TXT: lambda: as_text(render.render_fleet(found, top)),
    }
