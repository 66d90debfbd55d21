"""The forms that a report can be written in, by their names and suffixes."""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import RenderableType

from tracekit.cli.options import Form
from tracekit.cli.screen import as_text, check_output, emit, write
from tracekit.errors import OutputError
from tracekit.ingest.remote import is_uri, shown
from tracekit.reporting.model import Report

BINARY = (Form.XLSX, Form.PARQUET)
SUFFIXES = tuple(f".{form}" for form in Form)


def command() -> str:
    """The command line, for the report's provenance; of URIs without what may be secret in them."""
    return shlex.join(["tracekit", *(shown(given) if is_uri(given) else given for given in sys.argv[1:])])


def check(form: Form | None, output: Path | None, force: bool, inputs: Sequence[str]) -> None:
    """Refuse what can't be written, before the work is done; arguments as for :func:`check_output`.

    Raises:
        OutputError: The output can't be written, or a binary form would go to a terminal.
    """
    if form in BINARY and output is None and sys.stdout.isatty():
        raise OutputError(f"{form} is no text for a terminal.", f"Write a file: -o report.{form}.")
    if output is not None:
        check_output(output, force, (output.suffix,) if form else SUFFIXES, inputs)


def deliver(
    report: Report,
    screen: RenderableType,
    as_json: Callable[[], str],
    *,
    json: bool,
    form: Form | None,
    output: Path | None,
    quiet: bool,
) -> None:
    """Print a report and write its file.

    Without a file the form asked for is printed; with one it is written there, by default in the form that the
    suffix names, and the screen is printed as well.

    Raises:
        OutputError: The file can't be written.
        TracekitError: The form needs a package that isn't installed.
    """
    printed = Form.JSON if json else Form.TXT if output else form or Form.TXT
    if printed is Form.TXT:
        emit(screen, as_json, json=False)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(_content(printed, report, screen, as_json))
        sys.stdout.buffer.flush()
    if output is not None:
        wanted = form or Form(output.suffix.removeprefix("."))
        write(output, _content(wanted, report, screen, as_json), quiet)


def _content(form: Form, report: Report, screen: RenderableType, as_json: Callable[[], str]) -> bytes:
    from tracekit.render import html, markdown, tables, xlsx

    forms: dict[Form, Callable[[], str | bytes]] = {
        Form.HTML: lambda: html.page(report),
        Form.JSON: as_json,
        Form.MD: lambda: markdown.document(report),
        Form.XLSX: lambda: xlsx.workbook(report),
        Form.PARQUET: lambda: tables.parquet(report),
        Form.CSV: lambda: tables.csv(report),
        Form.TXT: lambda: as_text(screen),
    }
    content = forms[form]()
    return content if isinstance(content, bytes) else content.encode()
