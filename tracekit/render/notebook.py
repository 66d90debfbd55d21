"""Render the report in a notebook: an HTML card and charts."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from tracekit.errors import TracekitError
from tracekit.format import format_duration, format_interval, format_percent, shorten
from tracekit.messages.requests import EXTRA_MISSING
from tracekit.render.charts import build_chart
from tracekit.render.charts.model import Axis, Chart, Series, place_labels
from tracekit.render.colours import GREY
from tracekit.render.facts import format_speedup, is_per_sample
from tracekit.render.sentences import build_headline, choose_notes
from tracekit.reporting.model import Report

PlotlySpec = dict[str, Any]


def build_plotly_spec(chart: Chart) -> PlotlySpec:
    """Return a chart's ``data`` and ``layout`` as plotly expects them."""
    x, y = _build_axis(chart.x), _build_axis(chart.y)
    if chart.is_horizontal:
        y["autorange"] = "reversed"
    layout: PlotlySpec = {"xaxis": x, "yaxis": y, "barmode": "stack", "hovermode": "closest"}
    if chart.labels:
        y["domain"] = [0, 1 - place_labels(chart).height_px / chart.height_px]
        layout["annotations"] = _build_annotations(chart, y["domain"][1])
    return {"data": [_build_trace(chart, one) for one in chart.series], "layout": layout}


def _build_axis(axis: Axis) -> PlotlySpec:
    spec: PlotlySpec = {"title": {"text": axis.title}}
    if axis.is_logarithmic:
        spec |= {"type": "log", "dtick": 1, "exponentformat": "power"}
    if axis.ticks:
        spec |= {"tickvals": [value for value, _ in axis.ticks], "ticktext": [text for _, text in axis.ticks]}
    if axis.limits:
        spec["range"] = [_scale(axis, value) for value in axis.limits]
    return spec


def _scale(axis: Axis, value: float) -> float:
    """Return a value as plotly's ranges and annotations have it: its exponent on logarithmic axes."""
    return log10(value) if axis.is_logarithmic else value


def _build_trace(chart: Chart, series: Series) -> PlotlySpec:
    x: list[Any] = list(series.x)
    y: list[Any] = list(series.y)
    trace: PlotlySpec = {"name": series.name, "showlegend": series.is_in_legend, "legendgroup": series.name}
    if series.texts:
        trace |= {"hovertext": [text.replace("&", "&amp;").replace("<", "&lt;") for text in series.texts]}
        trace |= {"hoverinfo": "text"}
    if chart.is_horizontal and series.kind != "bars":
        y = [chart.categories[int(place)] for place in y]
    if series.kind == "bars":
        names = [chart.categories[int(place)] for place in x]
        ends = {"x": y, "y": names, "orientation": "h"} if chart.is_horizontal else {"x": names, "y": y}
        return {**trace, "type": "bar", **ends, "marker": {"color": series.colour}}
    if series.kind == "points":
        marker = {"color": series.colour, "opacity": 0.75, "size": list(series.sizes_px), "symbol": series.marker}
        return {**trace, "type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker, "cliponaxis": False}
    line = {"color": series.colour, "width": series.width_px, "dash": series.dash}
    stacked = {"stackgroup": "all"} if series.kind == "areas" else {}
    return {**trace, "type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, **stacked}


def _build_annotations(chart: Chart, above: float) -> list[PlotlySpec]:
    """Build the labels above the plot, and the lines from them to their points."""
    placed = place_labels(chart)
    assert chart.x.limits, "the axes of labelled charts have limits"
    assert chart.y.limits, "the axes of labelled charts have limits"
    left, right = (_scale(chart.x, value) for value in chart.x.limits)
    top = _scale(chart.y, chart.y.limits[1])
    annotations = []
    for label, text, fraction in zip(chart.labels, placed.texts, placed.places, strict=True):
        place = left + fraction * (right - left)
        angle = 0 if placed.is_level else -90
        at = {"x": place, "yref": "paper", "y": above, "yanchor": "bottom", "font": {"size": 12}}
        annotations.append({"text": text, "textangle": angle, "showarrow": False, **at})
        # An arrow without head or text, as plotly only lets arrows span two heights.
        ends = {"x": _scale(chart.x, label.x), "y": _scale(chart.y, label.y), "ax": place, "ay": top}
        line = {"axref": "x", "ayref": "y", "arrowhead": 0, "arrowwidth": 1, "arrowcolor": GREY, "standoff": 5}
        annotations.append({"text": "", **ends, **line})
    return annotations


if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MAX_ROWS = 5
MAX_TITLE_CHARS = 100
MAX_WARNINGS = 3
MAX_DOUBT_CHARS = 300


def make_figure(report: Report, name: str) -> Figure:
    """Return one of the report's charts as a plotly figure.

    Raises:
        TracekitError: There is no chart of that name, or plotly isn't installed.
    """
    try:
        from plotly.graph_objects import Figure
    except ImportError as error:
        raise TracekitError(EXTRA_MISSING(distribution="plotly", reason=str(error), extra="notebook")) from error
    spec = build_plotly_spec(build_chart(report, name))
    return Figure(data=spec["data"], layout={"template": "plotly_white", **spec["layout"]})


def render_report_card(report: Report) -> str:
    """Render the headline, the step on each GPU and the largest findings as HTML without script, below 20 kB."""
    said = build_headline(report)
    source = report.source
    each = " the throughput" if is_per_sample(report) else ""
    here = (source.gpu or source.label, format_duration(source.step_time_us), "", source.label)
    rows = [here] if report.has_baseline else []
    for target in report.targets[: MAX_ROWS - 1]:
        span = format_interval(target.low_us, target.high_us, target.step.step_time_us)
        faster = format_speedup(target.speedup_per_sample, f"×{each}")
        told = [faster] * report.has_baseline + ["lacks memory"] * (target.memory.fits is False)
        rows.append((target.label, format_duration(target.step.step_time_us), span, ", ".join(told)))
    findings = [_render_finding(f.title, f.saves_us, source.step_time_us) for f in report.findings[:MAX_ROWS]]
    left_out = len(report.targets) - (MAX_ROWS - 1)
    more = f"<p>and {left_out} more: <code>report.to_html()</code></p>" if left_out > 0 else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<div><p><b>{escape(said.before)} {escape(said.figure)}{escape(said.after)}</b><br>{escape(said.detail)}</p>"
        "<table><thead><tr><th>GPU</th><th>step</th><th>90 % interval</th><th></th></tr></thead>"
        f"<tbody>{body}</tbody></table>{more}<ul>{''.join(findings)}</ul>{_render_doubts(report)}</div>"
    )


def _render_doubts(report: Report) -> str:
    """Render what to know before relying on the figures: the first warnings, and the notes that matter most."""
    doubts = [*map(str, report.warnings[:MAX_WARNINGS]), *choose_notes(report).texts]
    rows = "".join(f"<li>{escape(shorten(doubt, MAX_DOUBT_CHARS))}</li>" for doubt in doubts)
    return f"<p>Before you rely on this:</p><ul>{rows}</ul>" if rows else ""


def _render_finding(title: str, saves_us: float | None, step_time_us: float) -> str:
    saves = ""
    if saves_us:
        saves = f" <b>−{format_duration(saves_us)}</b> ({format_percent(100 * saves_us / step_time_us)} of the step)"
    return f"<li>{escape(shorten(title, MAX_TITLE_CHARS))}{saves}</li>"
