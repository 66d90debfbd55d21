"""Write a report in the formats that names and suffixes select."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from tracekit import output_files
from tracekit.cli.options import OutputFormat
from tracekit.cli.output import check_output, emit, say, write_file
from tracekit.errors import OutputError
from tracekit.ingest.remote import is_uri, redact_uri
from tracekit.messages import command_errors, outputs
from tracekit.redact.patterns import find_private_names
from tracekit.render.plain_text import as_text
from tracekit.render.private_details import remove_details
from tracekit.render.step_facts import has_prices
from tracekit.reporting.model import Report
from tracekit.trace import Trace

STDOUT = Path("-")
BINARY_FORMATS = (OutputFormat.XLSX, OutputFormat.PARQUET)
TABLE_FORMATS = (OutputFormat.CSV, OutputFormat.PARQUET)
"""Formats of one table: of predictions it is the answer, a row for each target, and the kernels go beside it."""
SUFFIXES = tuple(f".{form}" for form in OutputFormat)


def format_command() -> str:
    """Return the command line for the report's provenance, with possible secrets removed from URIs."""
    return shlex.join(["tracekit", *(redact_uri(given) if is_uri(given) else given for given in sys.argv[1:])])


def settle_output(
    form: OutputFormat | None, output: Path | None, force: bool, inputs: Sequence[str], *, has_targets: bool = False
) -> tuple[OutputFormat | None, Path | None]:
    """Return what to print or write, and where to; refuse an output that can't be written before the work starts.

    ``-`` as the output is standard output, which takes Markdown unless a format is named.

    Args:
        form: The format that is named.
        output: As for :func:`check_output`, and so are the others.
        force: Likewise.
        inputs: Likewise.
        has_targets: Whether tables of kernels go to a file beside the output.

    Raises:
        OutputError: The output can't be written, or a binary format would go to a terminal.
    """
    if output == STDOUT:
        form, output = form or OutputFormat.MD, None
    if form in BINARY_FORMATS and output is None and sys.stdout.isatty():
        raise OutputError(command_errors.OUTPUT_NOT_FOR_TERMINAL(format=str(form)))
    if output is not None:
        check_output(output, force, (output.suffix,) if form else SUFFIXES, inputs)
        if has_targets and get_form(form, output) in TABLE_FORMATS:
            beside = _name_kernel_file(output)
            check_output(beside, force, (beside.suffix,), inputs)
    return form, output


def get_form(form: OutputFormat | None, output: Path) -> OutputFormat:
    """Return the format of a file: the one that is named, or that of its suffix."""
    return form or OutputFormat(output.suffix.removeprefix("."))


def choose_printed_form(form: OutputFormat | None, output: Path | None, *, json: bool) -> OutputFormat:
    """Return the format to print in: beside a file it is the screen."""
    return OutputFormat.JSON if json else OutputFormat.TXT if output else form or OutputFormat.TXT


def _name_kernel_file(output: Path) -> Path:
    """Name the table of kernels beside the answer: ``out.kernels.csv`` beside ``out.csv``."""
    return output.with_name(output_files.fit_name(output.stem, f".kernels{output.suffix}"))


def list_private_names(trace: Trace) -> set[str]:
    """List the names of hosts and users that a trace's metadata holds."""
    return find_private_names([rank.metadata for rank in trace.ranks])


@dataclass(frozen=True, slots=True)
class ReportForms:
    """How a command shows its report as text and as JSON; the other forms are the same for all commands."""

    screen: Callable[[Report], RenderableType]
    as_json: Callable[[Report], str]


def deliver_report(
    report: Report,
    forms: ReportForms,
    *,
    trace: Trace,
    json: bool,
    form: OutputFormat | None,
    output: Path | None,
    with_details: bool,
    quiet: bool,
) -> None:
    """Print a report and write its file.

    Without a file, the report is printed in the requested format. With a file, it is first written there, by default in
    the format of the suffix, and the screen is printed too. :mod:`tracekit.render.private_details` has the rule of what
    a file leaves out.

    Raises:
        OutputError: The file can't be written.
        TracekitError: The format needs a package that isn't installed.
    """
    printed = choose_printed_form(form, output, json=json)
    is_shared = output is not None or printed not in (OutputFormat.TXT, OutputFormat.JSON)
    shared = remove_details(report, list_private_names(trace)) if is_shared and not with_details else report
    if output is not None:
        wanted = get_form(form, output)
        write_file(output, _render_content(wanted, shared, forms), quiet)
        if report.targets and wanted in TABLE_FORMATS:
            write_file(_name_kernel_file(output), _render_kernels(wanted, shared), quiet)
        if has_prices(report) and not with_details:
            say(str(outputs.PRICES_LEFT_OUT(path=str(output))))
    if printed is OutputFormat.TXT:
        emit(forms.screen(report), lambda: forms.as_json(report), json=False)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(_render_content(printed, report if printed is OutputFormat.JSON else shared, forms))
        sys.stdout.buffer.flush()


def _render_content(form: OutputFormat, report: Report, forms: ReportForms) -> bytes:
    from tracekit.render import html, markdown, table_files, xlsx

    renderers: dict[OutputFormat, Callable[[Report], str | bytes]] = {
        OutputFormat.HTML: html.render_page,
        OutputFormat.JSON: forms.as_json,
        OutputFormat.MD: markdown.render_report,
        OutputFormat.XLSX: xlsx.render_workbook,
        OutputFormat.PARQUET: table_files.encode_answer_parquet if report.targets else table_files.encode_parquet,
        OutputFormat.CSV: table_files.encode_answer_csv if report.targets else table_files.encode_csv,
        OutputFormat.TXT: lambda one: as_text(forms.screen(one)),
    }
    content = renderers[form](report)
    return content if isinstance(content, bytes) else content.encode()


def _render_kernels(form: OutputFormat, report: Report) -> str | bytes:
    from tracekit.render import table_files

    return table_files.encode_parquet(report) if form is OutputFormat.PARQUET else table_files.encode_csv(report)
