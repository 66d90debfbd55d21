"""The report as a spreadsheet: a sheet per section, headings that explain themselves."""

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.errors import TracekitError, install_extra
from tracekit.render.words import headline, notes
from tracekit.reporting import tables
from tracekit.reporting.model import Report

if TYPE_CHECKING:
    from xlsxwriter import Workbook

ROWS = 1_000_000
"""Most rows of a sheet; Excel ends at 1,048,576."""
WORDS_WIDTH, NUMBER_WIDTH = 28, 14


def workbook(report: Report) -> bytes:
    """The report as an .xlsx file.

    Raises:
        TracekitError: XlsxWriter isn't installed.
    """
    return _written(tables.frames(report), lambda book: _summary(book, report))


def sheets(frames: Mapping[str, pl.DataFrame]) -> bytes:
    """Tables as an .xlsx file.

    Args:
        frames: By the names of their sheets.

    Raises:
        TracekitError: XlsxWriter isn't installed.
    """
    return _written(frames, lambda book: None)


def _written(frames: Mapping[str, pl.DataFrame], first: Callable[["Workbook"], None]) -> bytes:
    """A sheet for each table, behind what comes ``first``."""
    try:
        from xlsxwriter import Workbook
    except ImportError as error:
        raise TracekitError("spreadsheets need XlsxWriter.", install_extra("xlsx")) from error
    buffer = io.BytesIO()
    # Names of kernels may begin like formulas or addresses; they are text.
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "nan_inf_to_errors": True}
    with Workbook(buffer, options) as book:
        first(book)
        for name, frame in frames.items():
            _sheet(book, name, frame)
    return buffer.getvalue()


def _summary(book: "Workbook", report: Report) -> None:
    sheet = book.add_worksheet("summary")
    sheet.set_column(0, 0, 16)
    sheet.set_column(1, 1, 110)
    said = headline(report)
    origin = report.provenance
    rows = [
        ("answer", f"{said.before} {said.figure}{said.after} {said.detail}"),
        ("trace", origin.trace),
        ("sha256", origin.sha256 or ""),
        ("command", origin.command or ""),
        ("tracekit", origin.version),
        *(("warning", warning) for warning in report.warnings),
        *(("note", note) for note in notes(report)),
    ]
    for row, values in enumerate(rows):
        sheet.write_row(row, 0, values)


def _sheet(book: "Workbook", name: str, frame: pl.DataFrame) -> None:
    sheet = book.add_worksheet(name)
    heading = book.add_format({"bold": True, "bottom": 1})
    shown = frame.head(ROWS)
    for column, title in enumerate(shown.columns):
        width = WORDS_WIDTH if shown.dtypes[column] == pl.String else NUMBER_WIDTH
        sheet.set_column(column, column, width)
        sheet.write_string(0, column, title, heading)
        if title in MEANINGS.get(name, {}):
            sheet.write_comment(0, column, MEANINGS[name][title])
        sheet.write_column(1, column, shown[title].to_list())
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, shown.height, shown.width - 1)
    if frame.height > ROWS:
        sheet.write_string(ROWS + 1, 0, f"and {frame.height - ROWS} more: -o kernels.parquet has all")


MEANINGS: dict[str, dict[str, Any]] = {
    table.name: {column.name: column.doc for column in table.columns} for table in tables.TABLES
}
