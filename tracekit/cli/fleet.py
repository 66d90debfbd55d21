"""``tracekit predict --engine``: predict a job rank by rank."""

import sys
from collections.abc import Sequence

from tracekit.cli.arguments import OutputFormat
from tracekit.cli.command import Reporting
from tracekit.cli.output import emit
from tracekit.engine import open_engine
from tracekit.fleet import FleetReport, ReadingOptions
from tracekit.render import fleet as render
from tracekit.render.private_details import remove_details
from tracekit.request import PredictRequest, answers


def predict_rank_by_rank(
    traces: Sequence[str], request: PredictRequest, command: Reporting, engine_name: str, store: str | None
) -> FleetReport:
    """Predict a job and show it.

    Raises:
        TracekitError: As :func:`tracekit.request.answers.predict_fleet`; or the output can't be written.
    """
    to = command.settle_outputs(traces)
    with command.show_progress() as stage:
        engine = open_engine(engine_name)
        try:
            reading = ReadingOptions(store, not command.no_cache, command.memory, command.stacks)
            found = answers.predict_fleet(traces, request, engine, stage, reading)
        finally:
            engine.close()
    shared = found if command.with_details else remove_details(found)
    command.write({path: render.encode_fleet(shared, form.value, command.top) for path, form in to.files.items()})
    if to.printed in (OutputFormat.TXT, OutputFormat.JSON):
        screen = render.render_fleet(found, command.top, all_notes=command.verbose)
        emit(screen, lambda: render.dump_fleet(found), json=to.printed is OutputFormat.JSON)
    else:
        sys.stdout.buffer.write(render.encode_fleet(shared, to.printed.value, command.top))
    return found
