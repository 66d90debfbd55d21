"""``tracekit export``: export the data for other programs."""

from collections.abc import Sequence
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
        "--output",
        "-o",
        metavar="FILE",
        help="Where to; a timeline may end in .gz, Chakra's traces go into a folder.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
Format = Annotated[
    ExportFormat | None,
    typer.Option(
        "--format",
        help="perfetto: a timeline; kineto: the predicted step as a trace of the profiler; chakra: the dependency "
        "graph as execution traces, a file per rank; parquet, csv: a row per launched kernel. Default by the suffix.",
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
    from tracekit.capturing.program_names import strip_function
    from tracekit.cli.output import say, write_file
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import read_or_capture
    from tracekit.ingest.source import list_local_files
    from tracekit.output_files import make_folder, refuse_input_overwrite
    from tracekit.request import answers

    form = _check_output(output, form, traces, force)
    with show_progress(quiet, stages.PREDICTING) as stage:
        trace, request = read_or_capture(traces, request, program, ranks, no_cache, memory, stage, stacks)
        run = answers.measure(trace, request, stage)
        stage(stages.PREDICTING())
        if form is ExportFormat.CHAKRA:
            content, predicted = answers.export_execution_traces(run, request)
            files = {output / name: data for name, data in content.items()}
        else:
            data, predicted = answers.export(run, request, form, compress=output.suffix == ".gz")
            files = {output: data}
    if form is ExportFormat.CHAKRA:
        make_folder(output)
    for path, data in files.items():
        refuse_input_overwrite(path, list_local_files([*map(strip_function, traces)]))
        write_file(path, data, quiet)
    for refused in predicted.refused:
        say(f"tracekit: {refused}")


def _check_output(output: Path, form: ExportFormat | None, traces: Sequence[str], force: bool) -> ExportFormat:
    """Refuse an output that can't be written, and return its format."""
    from tracekit.cli.output import check_output
    from tracekit.output_files import check_folder

    if form is ExportFormat.CHAKRA:
        check_folder(output, force=force)
        return form
    known = EXPORT_SUFFIXES[form] if form else list(chain(*EXPORT_SUFFIXES.values()))
    check_output(output, force, known, traces)
    return form or next(form for form, suffixes in EXPORT_SUFFIXES.items() if output.suffix in suffixes)
