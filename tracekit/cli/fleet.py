"""``tracekit predict --engine``: predict a job rank by rank."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from tracekit.cli.options import OutputFormat
from tracekit.cli.output import check_output, emit, write_file
from tracekit.cli.progress import show_progress
from tracekit.cli.report_output import STDOUT, choose_printed_form, get_form
from tracekit.engine import open_engine
from tracekit.errors import RequestError
from tracekit.fleet import FleetReport
from tracekit.messages import fleets, name_option
from tracekit.render import fleet as render
from tracekit.render.plain_text import as_text
from tracekit.render.private_details import remove_details
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
    output: Path | None
    force: bool
    with_details: bool
    no_cache: bool
    memory: str | None
    verbose: bool
    quiet: bool


HONOURED = answers.FLEET_OPTIONS | set(FleetArguments.__dataclass_fields__) | {"traces", "strict"}
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
    form, output = _settle_output(given, traces)
    with show_progress(given.quiet) as stage:
        engine = open_engine(given.engine)
        try:
            found = answers.predict_fleet(
                traces, request, engine, stage, store=given.store, cache=not given.no_cache, memory=given.memory
            )
        finally:
            engine.close()
    shared = found if given.with_details else remove_details(found)
    if output is not None:
        write_file(output, _make_renderers(shared, given.top)[get_form(form, output)](), given.quiet)
    printed = choose_printed_form(form, output, json=given.json)
    if printed in (OutputFormat.TXT, OutputFormat.JSON):
        is_json = printed is OutputFormat.JSON
        screen = render.render_fleet(found, given.top, all_notes=given.verbose)
        emit(screen, lambda: render.dump_fleet(found), json=is_json)
    else:
        sys.stdout.write(_make_renderers(shared, given.top)[printed]())
    return found


def _settle_output(given: FleetArguments, traces: Sequence[str]) -> tuple[OutputFormat | None, Path | None]:
    """Return what to print or write, and where to; ``-`` is standard output."""
    form, output = given.form, given.output
    if form not in (None, *FORMS):
        raise RequestError(fleets.FLEET_OPTION(option=f"{name_option('format')} {form}"))
    if output == STDOUT:
        return form or OutputFormat.TXT, None
    suffixes = [f".{one}" for one in FORMS]
    check_output(output, given.force, [output.suffix] if form and output else suffixes, traces)
    return form, output


def _make_renderers(found: FleetReport, top: int) -> Mapping[OutputFormat, Callable[[], str]]:
    return {
        OutputFormat.HTML: lambda: render.render_fleet_page(found, top),
        OutputFormat.JSON: lambda: render.dump_fleet(found),
        OutputFormat.TXT: lambda: as_text(render.render_fleet(found, top)),
    }
