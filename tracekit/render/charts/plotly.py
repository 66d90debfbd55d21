"""Draw a chart as a plotly figure's specification, for notebooks."""

from math import log10
from typing import Any

from tracekit.render.charts.labels import place_labels
from tracekit.render.charts.model import Axis, Chart, Series
from tracekit.render.colours import GREY

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
