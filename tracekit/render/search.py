"""Render variants of a config: as text, Markdown, a page with a chart of time over parameters, tables and JSON."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.escape import to_markdown
from tracekit.format import format_dollars, format_duration, format_interval, format_number, format_quantity
from tracekit.messages import Message
from tracekit.messages import models as messages
from tracekit.render.charts.model import Axis, Chart, Series
from tracekit.render.charts.svg import draw_svg
from tracekit.render.colours import FAMILY_COLOURS, GREY
from tracekit.render.html.page import ReportBody, get_environment, read_asset, render_document
from tracekit.render.json import dump_document
from tracekit.render.markdown import format_table
from tracekit.render.screen import Grid, GridColumn

if TYPE_CHECKING:
    from tracekit.capturing.search import ProgramVariants

MAX_COLOURS = 8
"""Most values of a key that are told apart by colour."""
POINT_PX = 8.0


def render_variants(found: "ProgramVariants", top: int) -> RenderableType:
    """Render the variants as text, the fastest first, and why others have no time."""
    rows = _sort_predicted(found)
    headings = _list_headings(found)
    table = Grid([GridColumn(heading, "number") for heading in headings], gap=1)
    for row in rows.head(top).iter_rows(named=True):
        table.add_row(*_format_row(found, row))
    left = rows.height - top
    more = [Text(f"{left} more: --top {rows.height}", "dim")] if left > 0 else []
    said = [Text(f"note: {note}", "dim") for note in found.notes]
    refused = [Text(f"left out: {line}", "yellow") for line in _list_reasons(found)]
    answer = Text(str(describe_fastest(found)), "bold")
    return Group(answer, Text(), table, *more, Text(), *said, *refused)


def describe_fastest(found: "ProgramVariants") -> Message:
    """Say which variant is fastest, and how many there are."""
    row = next(_sort_predicted(found).iter_rows(named=True))
    values = [f"{key} {row[key]}" for key in found.axes]
    step = format_duration(row["step_time_us"])
    return messages.FASTEST_VARIANT(variants=found.table.height, values=values, gpu=row["gpu"], step=step)


def _sort_predicted(found: "ProgramVariants") -> pl.DataFrame:
    return found.table.filter(pl.col("step_time_us").is_not_null()).sort("step_time_us", maintain_order=True)


def _list_headings(found: "ProgramVariants") -> list[str]:
    is_priced = found.table["dollars_per_1000_steps"].null_count() < found.table.height
    on = ["on"] if found.table["gpu"].drop_nulls().n_unique() > 1 else []
    headings = [*on, *found.axes, "parameters", "step", "90 % interval", f"{found.unit}/s", "GB", "fits"]
    return [*headings, *(["$/1k"] if is_priced else [])]


def _format_row(found: "ProgramVariants", row: Mapping[str, Any]) -> list[str]:
    fits, headings = {True: "yes", False: "no", None: "?"}[row["fits_in_memory"]], _list_headings(found)
    cells = [
        *([row["gpu"]] if headings[0] == "on" else []),
        *(str(row[key]) for key in found.axes),
        f"{row['parameters']:,}",
        format_duration(row["step_time_us"]),
        format_interval(row["low_us"], row["high_us"]),
        "" if row["per_second"] is None else format_number(row["per_second"]),
        "" if row["memory_bytes"] is None else format_number(row["memory_bytes"] / 1e9),
        fits,
        format_dollars(row["dollars_per_1000_steps"]),
    ]
    return cells[: len(headings)]


def _list_reasons(found: "ProgramVariants") -> Iterator[str]:
    """List why variants have no time, each reason once with its number and an example."""
    refused = found.table.filter(pl.col("reason").is_not_null())
    for (reason,), rows in refused.group_by("reason", maintain_order=True):
        row = rows.row(0, named=True)
        example = ", ".join(f"{key} {row[key]}" for key in found.axes)
        yield f"{format_quantity(rows.height, 'variant')}, such as {example}: {reason}"


def build_variants_chart(found: "ProgramVariants") -> Chart:
    """Build the chart of step times over parameters; colours tell values of the first varied key apart."""
    rows = _sort_predicted(found)
    key = next((one for one in found.axes if 1 < rows[one].n_unique() <= MAX_COLOURS), None)
    groups = (
        [(f"{key} {value[0]}", part) for value, part in rows.sort(key).group_by(key, maintain_order=True)]
        if key
        else [("variants", rows)]
    )
    colours = [*FAMILY_COLOURS.values()] if key else [GREY]
    return Chart(
        name="variants",
        title="Step time over parameters",
        x=Axis("parameters, millions", is_logarithmic=True),
        y=Axis("step, ms", is_logarithmic=True),
        series=tuple(
            _build_points(found, name, part, colour) for (name, part), colour in zip(groups, colours, strict=False)
        ),
        height_px=480,
    )


def _build_points(found: "ProgramVariants", name: str, rows: pl.DataFrame, colour: str) -> Series:
    texts = [
        ", ".join([*(f"{key} {row[key]}" for key in found.axes), str(row["gpu"]), format_duration(row["step_time_us"])])
        for row in rows.iter_rows(named=True)
    ]
    return Series(
        name=name,
        kind="points",
        x=tuple((rows["parameters"] / 1e6).to_list()),
        y=tuple((rows["step_time_us"] / 1e3).to_list()),
        texts=tuple(texts),
        sizes_px=(POINT_PX,) * rows.height,
        colour=colour,
    )


def render_page(found: "ProgramVariants", title: str) -> str:
    """Render the variants as HTML that makes no network requests: the chart, and all rows."""
    content = (
        get_environment()
        .get_template("variants.html")
        .render(
            title=title,
            answer=str(describe_fastest(found)),
            chart=Markup(draw_svg(build_variants_chart(found))),
            headings=_list_headings(found),
            rows=[_format_row(found, row) for row in _sort_predicted(found).iter_rows(named=True)],
            reasons=list(_list_reasons(found)),
            notes=[*map(str, found.notes)],
        )
    )
    return render_document(title, ReportBody(Markup(content), Markup(read_asset("style.css")), Markup()))


def render_markdown(found: "ProgramVariants") -> str:
    """Return all variants as Markdown."""
    rows = [_format_row(found, row) for row in _sort_predicted(found).iter_rows(named=True)]
    notes = [f"- {to_markdown(line)}" for line in (*map(str, found.notes), *_list_reasons(found))]
    answer = to_markdown(str(describe_fastest(found)))
    return "\n".join([answer, "", *format_table(_list_headings(found), rows), "", *notes]) + "\n"


def as_json(found: "ProgramVariants") -> str:
    """Return the JSON that ``tracekit search --json`` prints."""
    body = {"decision": [describe_fastest(found)], "unit": found.unit, "variants": found.table, "notes": found.notes}
    return dump_document(body)
