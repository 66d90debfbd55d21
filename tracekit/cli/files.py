"""Commands that look into a trace, write another or show a file: from ``info`` to ``record``."""

import webbrowser
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tracekit.cli.arguments import Force, Quiet, Traces, TracesOrProgram, Verbose, expand_groups
from tracekit.cli.command import Printing, Reading, ReadingRanks, ReadingStacks, fill_source_gpu
from tracekit.messages import recordings, requests
from tracekit.request import ExportFormat, ExportRequest, Panel, RunOptions
from tracekit.request.options import EXPORT_SUFFIXES
from tracekit.request.program_options import ProgramOptions


@dataclass(frozen=True, kw_only=True)
class InfoCommand(ReadingStacks, Printing):
    """A summary of a trace."""


@expand_groups
def info(
    traces: Traces,
    request: RunOptions,
    command: InfoCommand,
    verbose: Verbose = False,
) -> None:
    """What is in a trace: GPU, steps, how much can be modelled, how well the replay fits.

    Example: tracekit info trace.json.gz

    Example: tracekit info traces/ -v
    """
    from tracekit.analysis.binding_edges import run_self_check
    from tracekit.inference_rules import INFERENCE_RULES
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.terminal import append_graph_check, append_rules, as_dict
    from tracekit.reporting import build_info
    from tracekit.request import answers
    from tracekit.request.option import split_values

    with command.show_progress() as stage:
        trace = command.read(traces, stage)
        run = answers.measure(trace, fill_source_gpu(trace, request), stage)
        info = build_info(run)
        graph = run_self_check(run.graph) if verbose else None
    shown = append_graph_check(terminal.render_info(info), graph)
    command.emit(
        append_rules(shown, INFERENCE_RULES, split_values(request.without_rule)) if verbose else shown,
        lambda: as_json.dump_info(info, as_dict(graph)),
    )


@dataclass(frozen=True, kw_only=True)
class DoctorCommand(ReadingRanks, Printing):
    """A diagnosis of a trace."""


@expand_groups
def doctor(
    traces: Traces,
    request: RunOptions,
    command: DoctorCommand,
) -> None:
    """Grade a trace from A to D: what a good prediction lacks, what that costs, and how to record a better one.

    Example: tracekit doctor trace.json.gz

    Example: tracekit doctor traces/ --json
    """
    from tracekit.doctor import examine
    from tracekit.render import screens as render
    from tracekit.request import answers

    with command.show_progress(requests.EXAMINING) as stage:
        trace = command.read(traces, stage)
        asked = fill_source_gpu(trace, request)
        measure = partial(answers.measure, trace, asked, stage)
        run = measure(rank=trace.ranks[0].rank)
        stage(requests.EXAMINING())
        diagnosis = examine(trace, run, measure=lambda rank: measure(rank=rank))
    command.emit(render.render_diagnosis(diagnosis), lambda: render.as_json(diagnosis))


ExportOutput = Annotated[
    list[Path],
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where to; several may be given. A timeline may end in .gz, Chakra's traces go into a folder.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
ExportForm = Annotated[
    ExportFormat | None,
    typer.Option(
        "--format",
        help="perfetto: a timeline; kineto: the predicted step as a trace of the profiler; chakra: the dependency "
        "graph as execution traces, a file per rank; parquet, csv: a row per launched kernel. Default by the suffix.",
        rich_help_panel=Panel.OUTPUT,
    ),
]


@expand_groups
def export(
    traces: TracesOrProgram,
    output: ExportOutput,
    request: ExportRequest,
    program: ProgramOptions,
    command: ReadingStacks,
    form: ExportForm = None,
    force: Force = False,
) -> None:
    """A timeline for Perfetto with the predicted one beside the measured one, or every kernel as a table.

    Example: tracekit export trace.json.gz --gpu h100-sxm --steps 7 -o timeline.json.gz

    Example: tracekit export trace.json.gz --gpu h100-sxm -o kernels.parquet
    """
    from tracekit.cli.output import say
    from tracekit.output_files import make_folder
    from tracekit.request import answers

    wanted = _check_exports(output, form, traces, force)
    with command.show_progress(requests.PREDICTING) as stage:
        trace, request = command.read_or_capture(traces, request, program, stage)
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
    command.write(files)
    for refused in predicted.refused:
        say(f"tracekit: {refused}")


def _check_exports(
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
    from tracekit.capturing.options import strip_function
    from tracekit.ingest.source import list_local_files
    from tracekit.output_files import refuse_input_overwrite

    inputs = list_local_files([*map(strip_function, traces)])
    for path in paths:
        refuse_input_overwrite(path, inputs)


DEFAULT_ARCHIVE = Path("shared.zip")
ARCHIVE_SUFFIX = ".zip"
PAGE_NAME = "report.html"

ShareOutput = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.zip|DIR",
        help="A zip archive to write, or a new folder.",
        show_default=str(DEFAULT_ARCHIVE),
        rich_help_panel=Panel.OUTPUT,
    ),
]


@expand_groups
def share(
    traces: Traces,
    request: ExportRequest,
    command: Reading,
    output: ShareOutput = None,
    force: Force = False,
) -> None:
    """Put the report's page and a redacted trace together, without paths, hosts, users, secrets and prices.

    Without a target, the page reports the measured step.

    Example: tracekit share trace.json.gz --gpu h100-sxm -o shared.zip
    """
    from tracekit import output_files
    from tracekit.cli.output import check_outputs, list_private_names, say, take_one_output
    from tracekit.ingest.source import STDIN, expand_inputs
    from tracekit.redact.files import check_shared_files, redact_source
    from tracekit.render.html import render_page
    from tracekit.render.private_details import remove_details
    from tracekit.reporting import build_prediction_report
    from tracekit.request import answers

    if STDIN in traces:
        raise typer.BadParameter("give files: they are read twice")
    place = take_one_output(output) or DEFAULT_ARCHIVE
    if place.suffix == ARCHIVE_SUFFIX:
        check_outputs([place], force, (ARCHIVE_SUFFIX,), traces)
    else:
        output_files.check_folder(place, force=force)
    sources = expand_inputs(traces).traces
    with (
        command.show_progress(requests.PREDICTING, requests.BUILDING_REPORT, requests.REDACTING) as stage,
        TemporaryDirectory() as made,
    ):
        trace = command.read(traces, stage)
        run = answers.measure(trace, request, stage)
        stage(requests.PREDICTING())
        predicted = answers.predict(run, request, stage)
        stage(requests.BUILDING_REPORT())
        report = build_prediction_report(predicted)
        names = list_private_names(trace)
        files = {PAGE_NAME: Path(made, PAGE_NAME)}
        files[PAGE_NAME].write_text(render_page(remove_details(report, names)), encoding="utf-8")
        for number, source in enumerate(sources):
            stage(requests.REDACTING())
            name = f"trace{f'-{number}' if len(sources) > 1 else ''}.redacted.json.gz"
            files[name] = Path(made, name)
            redact_source(source, files[name])
        here = [source.path.resolve().parent for source in sources if source.path]
        check_shared_files(files, names, here)
        _write_shared(files, place)
    if not command.quiet:
        say(str(recordings.SHARED_WRITTEN(path=str(place), files=[*files])))


def _write_shared(files: dict[str, Path], output: Path) -> None:
    """Write the files into an archive, or a folder."""
    from tracekit.output_files import make_folder, write_atomically

    if output.suffix != ARCHIVE_SUFFIX:
        make_folder(output)
        for name, path in files.items():
            with write_atomically(output / name) as partial:
                partial.write_bytes(path.read_bytes())
        return
    with write_atomically(output) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files.items():
            # The time of writing would be that of this machine.
            packed = zipfile.ZIP_STORED if path.suffix == ".gz" else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), packed)


RedactedPath = Annotated[
    list[Path] | None,
    typer.Option("--output", "-o", metavar="FILE", help="Where to; default TRACE's name with .redacted.json.gz."),
]
TraceFile = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help="One rank's trace: .json, .gz, .zst or .zip, a URI, or - for stdin.",
        show_default=False,
    ),
]


def redact(trace: TraceFile, output: RedactedPath = None, force: Force = False, quiet: Quiet = False) -> None:
    """Write a copy of a trace without host, user, path, environment and stack texts; predictions stay the same.

    Example: tracekit redact trace.json.gz -o share.json.gz
    """
    from tracekit.cli.output import take_one_output
    from tracekit.redact import files
    from tracekit.render import screens as render
    from tracekit.render.screen import PlainText, make_console

    path = take_one_output(output) or files.choose_default_output(trace)
    removed = files.redact(trace, path, force=force)
    if not quiet:
        make_console(stderr=True).print(PlainText(render.render_removed(removed, str(path))), highlight=False)


def view(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A report (.html) or a timeline (.json, .json.gz).", show_default=False),
    ],
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: any that is free.")] = 0,
    opened: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")] = True,
) -> None:
    """Show a report or a timeline, offline. Serves on 127.0.0.1 until Ctrl-C.

    A timeline needs Perfetto's page: pip install 'tracekit-gpu[view]'.

    Example: tracekit view report.html
    """
    from tracekit.cli.file_server import create_server

    with create_server(file, port) as serving:
        url = f"http://127.0.0.1:{serving.server_port}/"
        typer.echo(url)
        if opened:
            webbrowser.open(url)
        with suppress(KeyboardInterrupt):
            serving.serve_forever()


TRACES_FOLDER = Path("traces")
PASS_THROUGH_SETTINGS = {"allow_extra_args": True, "allow_interspersed_args": False, "ignore_unknown_options": True}


def record(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, its arguments after it.")],
    module: Annotated[bool, typer.Option("--module", "-m", help="SCRIPT is a module, as after python -m.")] = False,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", metavar="DIR", help="Where the trace goes.", show_default=str(TRACES_FOLDER)),
    ] = None,
    active: Annotated[int, typer.Option("--active", metavar="N", min=1, help="Steps to record.")] = 3,
    wait: Annotated[int, typer.Option("--wait", metavar="N", min=0, help="Steps to leave alone first.")] = 5,
    timed: Annotated[int, typer.Option("--timed", metavar="N", min=0, help="Steps to time without the profiler.")] = 5,
    warmup: Annotated[int, typer.Option("--warmup", metavar="N", min=0, help="Steps for the profiler to warm up.")] = 2,
    step_end: Annotated[
        str, typer.Option("--step-end", metavar="WHAT", help="What ends a step: optimizer, forward or auto.")
    ] = "auto",
    keep_running: Annotated[bool, typer.Option("--keep-running", help="Go on after the trace is written.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite an earlier trace there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Record a trace of a training or inference script, a file per rank, and grade it.

    A step ends with optimizer.step(), or where nothing is trained with each call of the model.

    The script ends with the last recorded step.

    Example: tracekit record train.py --batch-size 8

    Several ranks: torchrun --nproc-per-node 8 -m tracekit record train.py
    """
    from tracekit.cli.output import take_one_output
    from tracekit.recording import Recording
    from tracekit.recording.recorder import RecordingPlan
    from tracekit.recording.script import StepEnd, run_script

    try:
        end = StepEnd(step_end)
    except ValueError as error:
        raise typer.BadParameter(f"{step_end!r} is none of {', '.join(StepEnd)}") from error
    plan = RecordingPlan(wait, timed, warmup, active)
    recording = Recording(take_one_output(output) or TRACES_FOLDER, plan=plan, overwrite=force, quiet=quiet)
    run_script(script, context.args, recording, as_module=module, step_end=end, keep_running=keep_running)
