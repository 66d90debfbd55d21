"""``tracekit share``: the report's page and a redacted trace together, to be sent to others."""

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tracekit.cli.options import Force, Memory, NoCache, Quiet, Traces
from tracekit.cli.request_options import expand_requests
from tracekit.messages import recordings, requests
from tracekit.request import ExportRequest, Panel

DEFAULT_OUTPUT = Path("shared.zip")
ARCHIVE_SUFFIX = ".zip"
PAGE_NAME = "report.html"

Output = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.zip|DIR",
        help="A zip archive to write, or a new folder.",
        show_default=str(DEFAULT_OUTPUT),
        rich_help_panel=Panel.OUTPUT,
    ),
]


@expand_requests
def share(
    traces: Traces,
    request: ExportRequest,
    output: Output = None,
    force: Force = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Put the report's page and a redacted trace together, without paths, hosts, users, secrets and prices.

    Without a target, the page reports the measured step.

    Example: tracekit share trace.json.gz --gpu h100-sxm -o shared.zip
    """
    from tracekit import output_files
    from tracekit.cli.output import check_outputs, say, take_one_output
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import read_traces
    from tracekit.cli.report_output import list_private_names
    from tracekit.ingest.source import STDIN, expand_inputs
    from tracekit.redact.files import redact_source
    from tracekit.redact.leftovers import check_shared_files
    from tracekit.render.html import render_page
    from tracekit.render.private_details import remove_details
    from tracekit.reporting import build_prediction_report
    from tracekit.request import answers

    if STDIN in traces:
        raise typer.BadParameter("give files: they are read twice")
    place = take_one_output(output) or DEFAULT_OUTPUT
    if place.suffix == ARCHIVE_SUFFIX:
        check_outputs([place], force, (ARCHIVE_SUFFIX,), traces)
    else:
        output_files.check_folder(place, force=force)
    sources = expand_inputs(traces).traces
    with (
        show_progress(quiet, requests.PREDICTING, requests.BUILDING_REPORT, requests.REDACTING) as stage,
        TemporaryDirectory() as made,
    ):
        trace = read_traces(traces, None, no_cache, memory, stage)
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
    if not quiet:
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
