"""``tracekit sweep``: predict the traced job in many layouts."""

from collections.abc import Callable
from typing import Annotated

import typer

from tracekit.cli.options import Force, Json, Memory, NoCache, Output, Quiet, Ranks, TracesOrProgram, WithDetails
from tracekit.cli.request_options import expand_requests
from tracekit.escape import write_csv
from tracekit.messages import requests
from tracekit.request import Panel, SweepRequest
from tracekit.request.program_options import ProgramOptions

SUFFIXES = (".json", ".md", ".xlsx", ".csv", ".parquet", ".txt")
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Layouts to list.", rich_help_panel=Panel.OUTPUT)]


@expand_requests
def sweep(
    traces: TracesOrProgram,
    request: SweepRequest,
    program: ProgramOptions,
    top: Top = 20,
    ranks: Ranks = None,
    json: Json = False,
    output: Output = None,
    force: Force = False,
    with_details: WithDetails = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """The traced job on many numbers of ranks: which layout gets most done, and from where on more ranks help less.

    Example: tracekit sweep trace.json.gz --cluster 64x8xh100-sxm@ndr400 --price h100-sxm=2.49

    Example: tracekit sweep traces/ --cluster 8xmi300x --tp 1 --tp 2 --batch max -o layouts.xlsx
    """
    from tracekit.cli.output import check_outputs, emit, say, write_files
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import read_or_capture
    from tracekit.cli.report_output import list_private_names
    from tracekit.render import sweep as render
    from tracekit.render.private_details import remove_details
    from tracekit.render.screen import as_text
    from tracekit.reporting.sweep import SweepReport, build_sweep_report
    from tracekit.request import answers

    paths = check_outputs(output, force, SUFFIXES, traces)
    with show_progress(quiet, requests.PREDICTING_LAYOUTS) as stage:
        trace, request = read_or_capture(traces, request, program, ranks, no_cache, memory, stage)
        run = answers.measure(trace, request, stage)
        stage(requests.PREDICTING_LAYOUTS())
        found = build_sweep_report(answers.sweep(run, request))
    if paths:
        forms: dict[str, Callable[[SweepReport], str | bytes]] = {
            ".json": render.as_json,
            ".md": render.render_markdown,
            ".xlsx": render.render_workbook,
            ".csv": lambda one: write_csv(one.table),
            ".parquet": render.encode_parquet,
            ".txt": lambda one: as_text(render.render_sweep(one, top)),
        }
        shared = found if with_details else remove_details(found, list_private_names(trace))
        write_files({path: forms[path.suffix](shared) for path in paths}, quiet)
        if not with_details and any(entry.prediction.price is not None for entry in found.entries):
            say(str(requests.PRICES_LEFT_OUT(paths=[*map(str, paths)])))
    emit(render.render_sweep(found, top), lambda: render.as_json(found), json=json)
