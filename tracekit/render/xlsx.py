"""Render the report as a spreadsheet: one sheet per section, headings with comments."""

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.bounds import MAX_SHEET_ROWS
from tracekit.errors import TracekitError
from tracekit.escape import to_cell, to_sheet
from tracekit.messages.requests import EXTRA_MISSING
from tracekit.render.headline import build_headline
from tracekit.render.notes import choose_notes
from tracekit.render.xlsx_charts import add_charts
from tracekit.reporting import tables
from tracekit.reporting.model import Report

if TYPE_CHECKING:
    from xlsxwriter import Workbook

TEXT_WIDTH_PIXELS, NUMBER_WIDTH_PIXELS = 201, 103

NUMBER_FORMATS = {
    "_us": "#,##0.0",
    "_us_low": "#,##0.0",
    "_us_high": "#,##0.0",
    "_pct": "0.0",
    "share": "0.0",
    "utilization": "0.0",
    "speedup": "0.00",
    "speedup_per_sample": "0.00",
    "speedup_low": "0.00",
    "speedup_high": "0.00",
    "price": "$#,##0.00",
    **dict.fromkeys(("dollars", "dollars_low", "dollars_high"), "$#,##0.0000"),
    **dict.fromkeys(("break_even", "break_even_low", "break_even_high"), "$#,##0.00"),
    **dict.fromkeys(("run_hours", "run_hours_low", "run_hours_high"), "#,##0.0"),
    "per_second": "#,##0",
    "dollars_per_1000_steps": "$#,##0.0000",
    "dollars_per_1000_traced_steps": "$#,##0.0000",
    "dollars_per_million": "$#,##0.0000",
    "_j": "#,##0.000",
    "_w": "#,##0",
    "_gbps": "#,##0.0",
    "count": "#,##0.##",
    "bytes": "#,##0",
    "flops": "0.00E+00",
    "tbps": "0.000",
    "waves": "0.00",
}
"""Formats by how a column's name ends."""


def render_workbook(report: Report) -> bytes:
    """Return the report as an .xlsx file.

    Raises:
        TracekitError: XlsxWriter isn't installed.
    """
    return _write_workbook(tables.build_frames(report), lambda book: _write_summary(book, report))


def render_sheets(frames: Mapping[str, pl.DataFrame]) -> bytes:
    """Return tables as an .xlsx file.

    Args:
        frames: Tables by sheet name.

    Raises:
        TracekitError: XlsxWriter isn't installed.
    """
    return _write_workbook(frames, lambda book: None)


def _write_workbook(frames: Mapping[str, pl.DataFrame], first: Callable[["Workbook"], None]) -> bytes:
    """Write one sheet per table, after the sheets that ``first`` adds."""
    try:
        from xlsxwriter import Workbook
    except ImportError as error:
        raise TracekitError(EXTRA_MISSING(distribution="XlsxWriter", reason=str(error), extra="xlsx")) from error
    buffer = io.BytesIO()
    # Names of kernels may begin like formulas or addresses; they are text.
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with Workbook(buffer, options) as book:
        first(book)
        for name, frame in frames.items():
            _write_sheet(book, name, frame)
    return buffer.getvalue()


def _write_summary(book: "Workbook", report: Report) -> None:
    sheet = book.add_worksheet("summary")
    sheet.set_column(0, 0, 16)
    sheet.set_column(1, 1, 110)
    said = build_headline(report)
    origin = report.provenance
    rows = [
        ("answer", f"{said.before} {said.figure}{said.after} {said.detail}"),
        *(("note", note) for note in choose_notes(report).texts),
        ("trace", origin.trace),
        ("sha256", origin.sha256 or ""),
        ("command", origin.command or ""),
        ("tracekit", origin.version),
        *(("warning", str(warning)) for warning in report.warnings),
    ]
    labels = [label for label, _ in rows]
    for row, (label, text) in enumerate(rows):
        sheet.write_string(row, 0, "" if label in labels[:row] else label)
        sheet.write_string(row, 1, to_cell(text))


def _write_sheet(book: "Workbook", name: str, frame: pl.DataFrame) -> None:
    shown = to_sheet(frame.head(MAX_SHEET_ROWS))
    shown.write_excel(
        book,
        name,
        column_widths={
            title: TEXT_WIDTH_PIXELS if dtype == pl.String else NUMBER_WIDTH_PIXELS
            for title, dtype in shown.schema.items()
        },
        column_formats={
            title: choose_number_format(title) for title, dtype in shown.schema.items() if dtype.is_numeric()
        },
        freeze_panes=(1, 0),
    )
    sheet = book.get_worksheet_by_name(name)
    for column, title in enumerate(shown.columns):
        if title in COLUMN_DOCS.get(name, {}):
            sheet.write_comment(0, column, COLUMN_DOCS[name][title])
    if frame.height > MAX_SHEET_ROWS:
        sheet.write_string(
            MAX_SHEET_ROWS + 1, 0, f"and {frame.height - MAX_SHEET_ROWS} more: -o kernels.parquet has all"
        )
    add_charts(book, name, shown)


def choose_number_format(column: str) -> str:
    """Return how a spreadsheet shows the numbers of a column, by its name's ending; their digits stay."""
    own = column.rpartition(".")[2]
    return next((shown for ending, shown in NUMBER_FORMATS.items() if own.endswith(ending)), "General")


COLUMN_DOCS: dict[str, dict[str, Any]] = {
    table.name: {column.name: column.doc for column in table.columns} for table in tables.TABLES
}
