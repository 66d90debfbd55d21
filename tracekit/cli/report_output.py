"""Write a report in the formats that names and suffixes select."""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import RenderableType

from tracekit.cli.options import OutputFormat
from tracekit.cli.output import as_text, check_output, emit, write_file
from tracekit.errors import OutputError
from tracekit.ingest.remote import is_uri, redact_uri
from tracekit.messages import command_errors
from tracekit.reporting.model import Report

BINARY_FORMATS = (OutputFormat.XLSX, OutputFormat.PARQUET)
SUFFIXES = tuple(f".{form}" for form in OutputFormat)


def format_command() -> str:
    """Return the command line for the report's provenance, with possible secrets removed from URIs."""
    return shlex.join(["tracekit", *(redact_uri(given) if is_uri(given) else given for given in sys.argv[1:])])


def check_format(form: OutputFormat | None, output: Path | None, force: bool, inputs: Sequence[str]) -> None:
    """Refuse an output that can't be written before the work starts; arguments as for :func:`check_output`.

    Raises:
        OutputError: The output can't be written, or a binary format would go to a terminal.
    """
    if form in BINARY_FORMATS and output is None and sys.stdout.isatty():
        raise OutputError(command_errors.OUTPUT_NOT_FOR_TERMINAL(format=str(form)))
    if output is not None:
        check_output(output, force, (output.suffix,) if form else SUFFIXES, inputs)


def deliver_report(
    report: Report,
    screen: RenderableType,
    as_json: Callable[[], str],
    *,
    json: bool,
    form: OutputFormat | None,
    output: Path | None,
    quiet: bool,
) -> None:
    """Print a report and write its file.

    Without a file, the report is printed in the requested format. With a file, it is first written there, by default in
    the format of the suffix, and the screen is printed too.

    Raises:
        OutputError: The file can't be written.
        TracekitError: The format needs a package that isn't installed.
    """
    if output is not None:
        wanted = form or OutputFormat(output.suffix.removeprefix("."))
        write_file(output, _render_content(wanted, report, screen, as_json), quiet)
    printed = OutputFormat.JSON if json else OutputFormat.TXT if output else form or OutputFormat.TXT
    if printed is OutputFormat.TXT:
        emit(screen, as_json, json=False)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(_render_content(printed, report, screen, as_json))
        sys.stdout.buffer.flush()


def _render_content(form: OutputFormat, report: Report, screen: RenderableType, as_json: Callable[[], str]) -> bytes:
    from tracekit.render import html, markdown, table_files, xlsx

    forms: dict[OutputFormat, Callable[[], str | bytes]] = {
        OutputFormat.HTML: lambda: html.render_page(report),
        OutputFormat.JSON: as_json,
        OutputFormat.MD: lambda: markdown.render_report(report),
        OutputFormat.XLSX: lambda: xlsx.render_workbook(report),
        OutputFormat.PARQUET: lambda: table_files.encode_parquet(report),
        OutputFormat.CSV: lambda: table_files.encode_csv(report),
        OutputFormat.TXT: lambda: as_text(screen),
    }
    content = forms[form]()
    return content if isinstance(content, bytes) else content.encode()
