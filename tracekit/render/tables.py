"""Write the report's tables as a spreadsheet, CSV and Parquet."""

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.bounds import MAX_SHEET_ROWS
from tracekit.errors import TracekitError
from tracekit.escape import to_cell, to_sheet, write_csv
from tracekit.messages.requests import EXTRA_MISSING
from tracekit.render.colours import get_family_colour
from tracekit.render.sentences import build_headline, choose_notes
from tracekit.reporting import tables
from tracekit.reporting.model import Report

if TYPE_CHECKING:
    from xlsxwriter import Workbook

CHART_PIXELS = {"width": 720, "height": 360}
MAX_KERNEL_BARS = 15
ROWS_BETWEEN = 2


def add_charts(book: "Workbook", name: str, frame: pl.DataFrame) -> None:
    """Add a sheet's chart below its table, or beside a long one."""
    add = {tables.STEP.name: _chart_steps, tables.TIME.name: _chart_parts, tables.KERNEL_TIMES.name: _chart_kernels}
    if name in add and frame.height:
        add[name](book, frame)


def _chart_steps(book: "Workbook", frame: pl.DataFrame) -> None:
    """Chart each step with its interval."""
    name, rows = tables.STEP.name, frame.height
    known = frame.select(pl.col("low_us", "high_us").fill_null(pl.col("step_time_us")), "step_time_us")
    below, above = ((known["step_time_us"] - known["low_us"]), (known["high_us"] - known["step_time_us"]))
    chart = book.add_chart({"type": "bar"})
    chart.add_series(
        {
            "name": "step, with its 90 % interval",
            "categories": [name, 1, frame.columns.index("gpu"), rows, frame.columns.index("gpu")],
            "values": [name, 1, frame.columns.index("step_time_us"), rows, frame.columns.index("step_time_us")],
            "x_error_bars": {"type": "custom", "minus_values": below.to_list(), "plus_values": above.to_list()},
        }
    )
    _place(book, name, chart, "Step, µs", rows + ROWS_BETWEEN, 0)


def _chart_parts(book: "Workbook", frame: pl.DataFrame) -> None:
    """Chart where the time of each step goes, from a table of parts beside the sheet's."""
    name = tables.TIME.name
    parts = frame.pivot(on="part", index="gpu", values="time_us", aggregate_function="sum").fill_null(0.0)
    left = frame.width + 1
    sheet = book.get_worksheet_by_name(name)
    for column, title in enumerate(parts.columns):
        sheet.write_string(0, left + column, title)
        for row, value in enumerate(parts[title], 1):
            sheet.write(row, left + column, value)
    chart = book.add_chart({"type": "bar", "subtype": "stacked"})
    for column, part in enumerate(parts.columns[1:], left + 1):
        chart.add_series(
            {
                "name": [name, 0, column],
                "categories": [name, 1, left, parts.height, left],
                "values": [name, 1, column, parts.height, column],
                "fill": {"color": get_family_colour(part)},
            }
        )
    _place(book, name, chart, "Time per step, µs", parts.height + ROWS_BETWEEN, left)


def _chart_kernels(book: "Workbook", frame: pl.DataFrame) -> None:
    """Chart the longest kernels."""
    name, rows = tables.KERNEL_TIMES.name, min(frame.height, MAX_KERNEL_BARS)
    chart = book.add_chart({"type": "bar"})
    times = [title for title in frame.columns if title == "time_us" or title.endswith(".time_us")]
    for title in times:
        column = frame.columns.index(title)
        chart.add_series(
            {
                "name": title.removesuffix("time_us").rstrip(".") or "measured",
                "categories": [name, 1, frame.columns.index("op"), rows, frame.columns.index("op")],
                "values": [name, 1, column, rows, column],
            }
        )
    _place(book, name, chart, f"The {rows} longest kernels, µs per step", 1, frame.width + 1)


def _place(book: "Workbook", name: str, chart: Any, title: str, row: int, column: int) -> None:
    chart.set_title({"name": title, "name_font": {"size": 12}})
    chart.set_y_axis({"reverse": True})
    chart.set_x_axis({"num_format": "#,##0", "major_gridlines": {"visible": True}})
    chart.set_size(CHART_PIXELS)
    book.get_worksheet_by_name(name).insert_chart(row, column, chart)


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
    """Return tables by sheet name as an .xlsx file.

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


COLUMN_DOCS: dict[str, dict[str, str]] = {
    name: {column.name: column.doc for column in schema.columns} for name, schema in tables.SCHEMAS.items()
}


def encode_csv(report: Report) -> str:
    """Return the kernels as CSV; the columns are ``tracekit.reporting.tables.KERNEL_TIMES``."""
    return write_csv(tables.build_kernel_frame(report))


def encode_parquet(report: Report) -> bytes:
    """Return the kernels as Parquet."""
    return to_parquet(tables.build_kernel_frame(report))


def encode_answer_csv(report: Report) -> str:
    """Return the measured step and the predicted ones as CSV; the columns are ``tracekit.reporting.tables.STEP``."""
    return write_csv(tables.build_answer_frame(report))


def encode_answer_parquet(report: Report) -> bytes:
    """Return the measured step and the predicted ones as Parquet."""
    return to_parquet(tables.build_answer_frame(report))


def to_parquet(table: pl.DataFrame) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()
