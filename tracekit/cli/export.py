"""``tracekit export``: export the data for other programs."""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Force, Memory, NoCache, Quiet, Ranks, Stacks, TracesOrProgram
from tracekit.cli.request_options import expand_requests
from tracekit.messages import requests
from tracekit.request import ExportFormat, ExportRequest, Panel
from tracekit.request.options import EXPORT_SUFFIXES
from tracekit.request.program_options import ProgramOptions

Output = Annotated[
    list[Path],
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where to; several may be given. A timeline may end in .gz, Chakra's traces go into a folder.",
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
    from tracekit.cli.output import say, write_files
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import read_or_capture
    from tracekit.output_files import make_folder
    from tracekit.request import answers

    wanted = _check_outputs(output, form, traces, force)
    with show_progress(quiet, requests.PREDICTING) as stage:
        trace, request = read_or_capture(traces, request, program, ranks, no_cache, memory, stage, stacks)
        run = answers.measure(trace, request, stage)
        stage(requests.PREDICTING())
        predicted = answers.predict_exported(run, request)
        files: dict[Path, bytes] = {}
        for path, one in wanted.items():
            if one is ExportFormat.CHAKRA:
                files |= {path / name: data for name, data in answers.encode_execution_traces(predicted).items()}
            else:
                files[path] = answers.encode_export(predicted, one, compress=path.suffix == ".gz")
    _refuse_inputs(files, traces)
    for path, one in wanted.items():
        if one is ExportFormat.CHAKRA:
            make_folder(path)
    write_files(files, quiet)
    for refused in predicted.refused:
        say(f"tracekit: {refused}")


def _check_outputs(
    outputs: Sequence[Path], form: ExportFormat | None, traces: Sequence[str], force: bool
) -> dict[Path, ExportFormat]:
    """Refuse outputs if one can't be written, and return the format of each."""
    from tracekit.cli.output import check_outputs, drop_repeated
    from tracekit.output_files import check_folder

    if form is ExportFormat.CHAKRA:
        for path in outputs:
            check_folder(path, force=force)
        return dict.fromkeys(drop_repeated(outputs), form)
    known = EXPORT_SUFFIXES[form] if form else list(chain(*EXPORT_SUFFIXES.values()))
    return {path: form or _find_format(path) for path in check_outputs(outputs, force, known, traces)}


def _find_format(path: Path) -> ExportFormat:
    return next(form for form, suffixes in EXPORT_SUFFIXES.items() if path.suffix in suffixes)


def _refuse_inputs(paths: Iterable[Path], traces: Sequence[str]) -> None:
    """Refuse to overwrite inputs: what lies in a folder is known only now."""
    from tracekit.capturing.program_names import strip_function
    from tracekit.ingest.source import list_local_files
    from tracekit.output_files import refuse_input_overwrite

    inputs = list_local_files([*map(strip_function, traces)])
    for path in paths:
        refuse_input_overwrite(path, inputs)
