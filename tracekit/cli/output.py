"""Output of commands: data to stdout or files in the forms that their suffixes name, messages to stderr."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import RenderableType

from tracekit import output_files
from tracekit.capturing.options import strip_function
from tracekit.cli.arguments import OutputFormat
from tracekit.errors import OutputError
from tracekit.escape import to_line
from tracekit.ingest.archive import is_uri, redact_uri
from tracekit.messages import front_ends, requests
from tracekit.redact.redactor import find_private_names
from tracekit.render.facts import has_prices
from tracekit.render.private_details import remove_details
from tracekit.render.screen import PlainText, as_text, make_console
from tracekit.reporting.model import Report
from tracekit.trace import Trace


def say(text: str) -> None:
    """Print a line on stderr."""
    typer.echo(to_line(text), err=True)


def print_line(text: str) -> None:
    """Print a line on stdout."""
    typer.echo(to_line(text))


def check_outputs(
    paths: Sequence[Path] | None, force: bool, suffixes: Sequence[str] | None, inputs: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Refuse outputs if one can't be written, before the work starts; return them, each once.

    Args:
        paths: The output files, if any.
        force: Allow overwriting existing files.
        suffixes: Suffixes of the known formats; None where any will do.
        inputs: Input files; they are never overwritten.

    Raises:
        OutputError: A file exists already, is no file or an input, its directory doesn't exist, or its suffix names no
            format.
    """
    found = drop_repeated(paths or ())
    for path in found:
        _check_output(path, force, suffixes, inputs)
    return found


def drop_repeated(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return paths without those that lead where an earlier one does."""
    return tuple({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]


def take_one_output(paths: Sequence[Path] | None) -> Path | None:
    """Return the output of a command that writes to one place.

    Raises:
        OutputError: Several are named.
    """
    found = drop_repeated(paths or ())
    if len(found) > 1:
        raise OutputError(front_ends.OUTPUT_SEVERAL(paths=[str(path) for path in found]))
    return found[0] if found else None


def _check_output(path: Path, force: bool, suffixes: Sequence[str] | None, inputs: Sequence[str]) -> None:
    output_files.refuse_standard_output(path)
    if suffixes is not None and path.suffix not in suffixes:
        raise OutputError(front_ends.OUTPUT_FORMAT_UNKNOWN(path=str(path), suffix=path.suffix, known=[*suffixes]))
    output_files.check_writable(path, force=force)
    if path.exists():
        from tracekit.ingest.source import list_local_files

        output_files.refuse_input_overwrite(path, list_local_files([*map(strip_function, inputs)]))


def emit(screen: RenderableType, as_json: Callable[[], str], *, json: bool) -> None:
    """Print the screen, or JSON instead."""
    if json:
        print(as_json(), end="")  # noqa: T201
    else:
        make_console().print(PlainText(screen), soft_wrap=False)


def write_files(contents: Mapping[Path, str | bytes], quiet: bool) -> None:
    """Write files, all or none, and print their paths.

    Raises:
        OutputError: A file can't be written.
    """
    output_files.write_together(
        {path: content.encode() if isinstance(content, str) else content for path, content in contents.items()}
    )
    for path in () if quiet else contents:
        say(f"Wrote {path}")


STDOUT = Path("-")
BINARY_FORMATS = (OutputFormat.XLSX, OutputFormat.PARQUET)
TABLE_FORMATS = (OutputFormat.CSV, OutputFormat.PARQUET)
"""Formats of one table: of predictions it is the answer, a row for each target, and the kernels go beside it."""


def format_command() -> str:
    """Return the command line for the report's provenance, with possible secrets removed from URIs."""
    return shlex.join(["tracekit", *(redact_uri(given) if is_uri(given) else given for given in sys.argv[1:])])


@dataclass(frozen=True, slots=True)
class Destinations:
    """Where a report goes.

    Attributes:
        printed: What is printed.
        files: The files, with the form of each.
        kernels: The table of kernels beside a file, by that file.
    """

    printed: OutputFormat
    files: Mapping[Path, OutputFormat]
    kernels: Mapping[Path, Path]

    @property
    def has_page(self) -> bool:
        """Whether one of the forms is the page."""
        return OutputFormat.HTML in (self.printed, *self.files.values())


def settle_outputs(
    form: OutputFormat | None,
    outputs: Sequence[Path] | None,
    force: bool,
    inputs: Sequence[str],
    *,
    json: bool,
    has_targets: bool = False,
    forms: Sequence[OutputFormat] = tuple(OutputFormat),
    standard_form: OutputFormat = OutputFormat.MD,
) -> Destinations:
    """Return where a report goes; refuse all outputs if one can't be written, before the work starts.

    ``-`` among the outputs is standard output, in the format that is named. Without it, that is the format of files,
    and beside files the screen is printed.

    Args:
        form: The format that is named.
        outputs: As for :func:`check_outputs`, and so are the others.
        force: Likewise.
        inputs: Likewise.
        json: Whether JSON is printed in any case.
        has_targets: Whether tables of kernels go to a file beside the output.
        forms: The formats that there are.
        standard_form: What ``-`` stands for without a format.

    Raises:
        OutputError: An output can't be written, or a binary format would go to a terminal.
    """
    given = outputs or ()
    named = [path for path in given if path != STDOUT]
    is_printed = len(named) < len(given)
    screen = OutputFormat.TXT if named else form or OutputFormat.TXT
    printed = OutputFormat.JSON if json else form or standard_form if is_printed else screen
    if printed in BINARY_FORMATS and sys.stdout.isatty():
        raise OutputError(front_ends.OUTPUT_NOT_FOR_TERMINAL(format=str(printed)))
    of_files = None if is_printed else form
    paths = check_outputs(named, force, None if of_files else [f".{one}" for one in forms], inputs)
    files = {path: of_files or OutputFormat(path.suffix.removeprefix(".")) for path in paths}
    kernels = {path: _name_kernel_file(path) for path in paths if has_targets and files[path] in TABLE_FORMATS}
    for beside in kernels.values():
        if len(drop_repeated([*paths, beside])) == len(paths):
            raise OutputError(front_ends.OUTPUT_OVERLAP(path=str(beside)))
    check_outputs([*kernels.values()], force, None, inputs)
    return Destinations(printed, files, kernels)


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
    report: Report, forms: ReportForms, to: Destinations, *, trace: Trace, with_details: bool, quiet: bool
) -> None:
    """Print a report and write its files.

    :mod:`tracekit.render.private_details` has the rule of what a file leaves out.

    Raises:
        OutputError: A file can't be written; then none is.
        TracekitError: The format needs a package that isn't installed.
    """
    is_shared = bool(to.files) or to.printed not in (OutputFormat.TXT, OutputFormat.JSON)
    shared = remove_details(report, list_private_names(trace)) if is_shared and not with_details else report
    contents = {path: _render_content(form, shared, forms) for path, form in to.files.items()}
    if report.targets:
        contents |= {beside: _render_kernels(to.files[path], shared) for path, beside in to.kernels.items()}
    write_files(contents, quiet)
    if to.files and has_prices(report) and not with_details:
        say(str(requests.PRICES_LEFT_OUT(paths=[*map(str, to.files)])))
    if to.printed is OutputFormat.TXT:
        emit(forms.screen(report), lambda: forms.as_json(report), json=False)
    else:
        told = report if to.printed is OutputFormat.JSON else shared
        sys.stdout.flush()
        sys.stdout.buffer.write(_render_content(to.printed, told, forms))
        sys.stdout.buffer.flush()


def _render_content(form: OutputFormat, report: Report, forms: ReportForms) -> bytes:
    from tracekit.render import html, markdown, tables

    renderers: dict[OutputFormat, Callable[[Report], str | bytes]] = {
        OutputFormat.HTML: html.render_page,
        OutputFormat.JSON: forms.as_json,
        OutputFormat.MD: markdown.render_report,
        OutputFormat.XLSX: tables.render_workbook,
        OutputFormat.PARQUET: tables.encode_answer_parquet if report.targets else tables.encode_parquet,
        OutputFormat.CSV: tables.encode_answer_csv if report.targets else tables.encode_csv,
        OutputFormat.TXT: lambda one: as_text(forms.screen(one)),
    }
    content = renderers[form](report)
    return content if isinstance(content, bytes) else content.encode()


def _render_kernels(form: OutputFormat, report: Report) -> bytes:
    from tracekit.render import tables

    if form is OutputFormat.PARQUET:
        return tables.encode_parquet(report)
    return tables.encode_csv(report).encode()
