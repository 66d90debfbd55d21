"""``tracekit predict --engine``: predict a job rank by rank."""

import sys
from collections.abc import Callable, Mapping, Sequence

from tracekit.cli.arguments import OutputFormat
from tracekit.cli.command import Reporting
from tracekit.cli.output import emit, settle_outputs
from tracekit.engine import open_engine
from tracekit.errors import RequestError
from tracekit.fleet import FleetReport, ReadingOptions
from tracekit.messages import fleets, name_option
from tracekit.render import fleet as render
from tracekit.render.private_details import remove_details
from tracekit.render.screen import as_text
from tracekit.request import PredictRequest, answers

FORMS = (OutputFormat.HTML, OutputFormat.JSON, OutputFormat.TXT)


def predict_rank_by_rank(
    traces: Sequence[str], request: PredictRequest, command: Reporting, engine_name: str, store: str | None
) -> FleetReport:
    """Predict a job and show it.

    Raises:
        TracekitError: As :func:`tracekit.request.answers.predict_fleet`; or the output can't be written.
    """
    if command.form not in (None, *FORMS):
        raise RequestError(fleets.FLEET_OPTION(option=f"{name_option('format')} {command.form}"))
    to = settle_outputs(
        command.form,
        command.output,
        command.force,
        traces,
        json=command.json,
        forms=FORMS,
        standard_form=OutputFormat.TXT,
    )
    with command.show_progress() as stage:
        engine = open_engine(engine_name)
        try:
            reading = ReadingOptions(store, not command.no_cache, command.memory, command.stacks)
            found = answers.predict_fleet(traces, request, engine, stage, reading)
        finally:
            engine.close()
    shared = found if command.with_details else remove_details(found)
    renderers = _make_renderers(shared, command.top)
    command.write({path: renderers[form]() for path, form in to.files.items()})
    if to.printed in (OutputFormat.TXT, OutputFormat.JSON):
        is_json = to.printed is OutputFormat.JSON
        screen = render.render_fleet(found, command.top, all_notes=command.verbose)
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
