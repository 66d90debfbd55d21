"""``tracekit sweep``: predict the traced job in many layouts."""

from collections.abc import Callable
from typing import Annotated

import typer

from tracekit.cli.options import Force, Json, Memory, NoCache, Output, Quiet, Ranks, TracesOrProgram
from tracekit.cli.request_options import expand_requests
from tracekit.escape import write_csv
from tracekit.messages import stages
from tracekit.request import SweepRequest
from tracekit.request.program_options import ProgramOptions

SUFFIXES = (".json", ".md", ".xlsx", ".csv", ".parquet", ".txt")
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Layouts to list.")]


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
    no_cache: NoCache = False,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """The traced job on many numbers of ranks: which layout gets most done, and from where on more ranks help less.

    Example: tracekit sweep trace.json.gz --cluster 64x8xh100-sxm@ndr400 --price h100-sxm=2.49
    """
    from tracekit.cli.output import as_text, check_output, emit, show_progress, write_file
    from tracekit.cli.read import read_or_capture
    from tracekit.render import sweep as render
    from tracekit.reporting.sweep import build_sweep_report
    from tracekit.request import answers

    check_output(output, force, SUFFIXES, traces)
    with show_progress(quiet) as stage:
        trace, request = read_or_capture(traces, request, program, ranks, no_cache, memory, stage)
        run = answers.measure(trace, request, stage)
        stage(stages.PREDICTING_LAYOUTS())
        found = build_sweep_report(answers.sweep(run, request))
    screen = render.render_sweep(found, top)
    if output is not None:
        forms: dict[str, Callable[[], str | bytes]] = {
            ".json": lambda: render.as_json(found),
            ".md": lambda: render.render_markdown(found),
            ".xlsx": lambda: render.render_workbook(found),
            ".csv": lambda: write_csv(found.table),
            ".parquet": lambda: render.encode_parquet(found),
            ".txt": lambda: as_text(screen),
        }
        write_file(output, forms[output.suffix](), quiet)
    emit(screen, lambda: render.as_json(found), json=json)
