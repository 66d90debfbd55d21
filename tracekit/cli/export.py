"""``tracekit export``: export the data for other programs."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Force, Memory, NoCache, Quiet, Ranks, Stacks, TracesOrProgram
from tracekit.cli.request_options import expand_requests
from tracekit.messages import stages
from tracekit.request import ExportFormat, ExportRequest, Panel
from tracekit.request.options import EXPORT_SUFFIXES
from tracekit.request.program_options import ProgramOptions

Output = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Where to; a timeline may end in .gz.", rich_help_panel=Panel.OUTPUT
    ),
]
Format = Annotated[
    ExportFormat | None,
    typer.Option(
        "--format",
        help="perfetto: a timeline; kineto: the predicted step as a trace of the profiler; parquet and csv: a row per "
        "launched kernel. Default by the suffix.",
        rich_help_panel=Panel.OUTPUT,
    ),
]


@expand_requests
def export(
    traces: TracesOrProgram,
    output: Output,
    request: ExportRequest,
    program: ProgramOptions,
    form: Format = None,
    ranks: Ranks = None,
    force: Force = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    stacks: Stacks = False,
    quiet: Quiet = False,
) -> None:
    """A timeline for Perfetto with the predicted one beside the measured one, or every kernel as a table.

    Example: tracekit export trace.json.gz --gpu h100-sxm --steps 7 -o timeline.json.gz

    Example: tracekit export trace.json.gz --gpu h100-sxm -o kernels.parquet
    """
    from tracekit.cli.output import check_output, say, write_file
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import read_or_capture
    from tracekit.request import answers

    known = EXPORT_SUFFIXES[form] if form else list(chain(*EXPORT_SUFFIXES.values()))
    check_output(output, force, known, traces)
    form = form or next(form for form, suffixes in EXPORT_SUFFIXES.items() if output.suffix in suffixes)
    with show_progress(quiet, stages.PREDICTING) as stage:
        trace, request = read_or_capture(traces, request, program, ranks, no_cache, memory, stage, stacks)
        run = answers.measure(trace, request, stage)
        stage(stages.PREDICTING())
        content, predicted = answers.export(run, request, form, compress=output.suffix == ".gz")
    write_file(output, content, quiet)
    for refused in predicted.refused:
        say(f"tracekit: {refused}")
