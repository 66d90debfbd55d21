"""Charts of a spreadsheet, drawn by the program that opens it from the figures beside them."""

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.render.colours import get_family_colour
from tracekit.reporting import tables

if TYPE_CHECKING:
    from xlsxwriter import Workbook

CHART_PIXELS = {"width": 720, "height": 360}
MAX_KERNEL_BARS = 15
ROWS_BETWEEN = 2


def add_charts(book: "Workbook", name: str, frame: pl.DataFrame) -> None:
    """Add a sheet's chart below its table, or beside a long one.

    Args:
        book: The spreadsheet, with the sheet.
        name: Name of the sheet.
        frame: Its table.
    """
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
