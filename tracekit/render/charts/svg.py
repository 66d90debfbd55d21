"""Draw a chart as SVG with matplotlib: text stays text, and what has no colour of its own takes that of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from tracekit.escape import to_html, to_line
from tracekit.render.charts.labels import PlacedLabels, place_labels
from tracekit.render.charts.model import Chart, Series
from tracekit.render.colours import GREY, IDLE_COLOUR

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

WIDTH_PX = 960.0
POINTS_PER_INCH = 72.0
"""With which a point of matplotlib's is a pixel of the picture."""
FONT_PX = 13.0
INK = "#010203"
"""Stands for the colour of the page's text."""
IDLE_OPACITY = 0.15
DASHES = {
    "solid": "solid",
    "dash": (0, (5, 3)),
    "dot": (0, (1, 2)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 3)),
}
MARKERS = {"circle": "o", "diamond": "D"}
BAR_WIDTH = 0.72
"""As a fraction of its row."""
MIN_BAR_FRACTION = 2e-3
"""Parts of a bar below this fraction of the longest are thinner than two pixels."""
MAX_DRAWN = 64
"""Charts that are kept: drawing takes a fifth of a second, and a report is often rendered more than once."""
LEGEND_COLUMNS = 7
LEGEND_MARKER_PX = 9
SETTINGS: dict[str, Any] = {
    "axes.edgecolor": "none",
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib; the page's own font takes its place
    "font.size": FONT_PX,
    "grid.alpha": 0.15,
    "grid.color": INK,
    "legend.frameon": False,
    "legend.borderpad": 0,
    "legend.handlelength": 1.6,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,
    "text.usetex": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


@lru_cache(maxsize=MAX_DRAWN)
def draw_svg(chart: Chart) -> str:
    """Return a chart as an SVG element, without a request, a script or an id that another chart has."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    size = (WIDTH_PX / POINTS_PER_INCH, chart.height_px / POINTS_PER_INCH)
    texts: dict[str, tuple[str, ...]] = {}
    settings: Any = SETTINGS | {"svg.hashsalt": chart.name}
    with rc_context(settings):
        figure = Figure(figsize=size, dpi=POINTS_PER_INCH, layout="constrained")
        axes = figure.add_subplot()
        axes.grid(axis="x" if chart.is_horizontal else "y" if chart.categories else "both")
        handles = _draw_series(axes, chart, texts)
        _set_axes(axes, chart)
        _draw_labels(axes, chart, place_labels(chart))
        if len(handles) > 1:
            columns = min(LEGEND_COLUMNS, len(handles))
            figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=columns)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _tidy(written.getvalue(), chart, texts)


def _draw_series(axes: Axes, chart: Chart, texts: dict[str, tuple[str, ...]]) -> dict[str, Artist]:
    """Draw all series; return what the legend shows, and add the texts of the parts of each group."""
    handles: dict[str, Artist] = {}
    begin = [0.0] * len(chart.categories)
    for number, series in enumerate(chart.series):
        group = f"{chart.name}-{number}"
        if series.kind == "bars":
            artist = _draw_bars(axes, chart, series, begin, group)
            begin = [start + length for start, length in zip(begin, series.y, strict=True)]
            texts |= {f"{group}-{i}": (text,) for i, text in enumerate(series.texts)}
        elif series.kind == "points":
            artist = _draw_points(axes, series, group, texts)
        else:
            artist = _draw_line(axes, chart, number, group)
            texts[group] = series.texts[:1]
        if series.is_in_legend:
            handles[series.name] = artist
    return handles


def _draw_bars(axes: Axes, chart: Chart, series: Series, begin: list[float], group: str) -> Artist:
    from matplotlib.patches import Rectangle

    alpha = IDLE_OPACITY if series.colour == IDLE_COLOUR else 1.0
    colour: dict[str, Any] = {
        "color": INK if series.colour == IDLE_COLOUR else series.colour,
        "alpha": alpha,
        "linewidth": 0,
    }
    draw = axes.barh if chart.is_horizontal else axes.bar
    longest = max(map(sum, zip(*(one.y for one in chart.series), strict=True)))
    for i, length in enumerate(series.y):
        if length > MIN_BAR_FRACTION * longest:
            start: dict[str, Any] = {"left" if chart.is_horizontal else "bottom": begin[i]}
            [bar] = draw(series.x[i], length, BAR_WIDTH, clip_on=False, **colour, **start)
            bar.set_gid(f"{group}-{i}")
    return Rectangle((0, 0), 1, 1, **colour)


def _draw_points(axes: Axes, series: Series, group: str, texts: dict[str, tuple[str, ...]]) -> Artist:
    """Draw points of one size at a time, which lets the SVG store their shape once."""
    for size in sorted(set(series.sizes_px), reverse=True):
        chosen = [i for i, other in enumerate(series.sizes_px) if other == size]
        axes.scatter(
            [series.x[i] for i in chosen],
            [series.y[i] for i in chosen],
            s=size**2,
            marker=MARKERS[series.marker],
            color=series.colour,
            alpha=0.75,
            linewidths=0,
            gid=f"{group}-{size:g}",
            clip_on=False,
        )
        texts[f"{group}-{size:g}"] = tuple(series.texts[i] for i in chosen)
    [handle] = axes.plot([], [], color=series.colour, marker=MARKERS[series.marker], markersize=LEGEND_MARKER_PX, lw=0)
    return handle


def _draw_line(axes: Axes, chart: Chart, number: int, group: str) -> Artist:
    series = chart.series[number]
    if series.kind == "areas":
        earlier = [one.y for one in chart.series[:number]]
        low = [sum(values) for values in zip(*earlier, strict=True)] if earlier else [0.0] * len(series.x)
        high = [below + value for below, value in zip(low, series.y, strict=True)]
        return axes.fill_between(series.x, low, high, color=series.colour, alpha=0.8, lw=0, gid=group)
    width: dict[str, Any] = {"linewidth": series.width_px, "linestyle": DASHES[series.dash]}
    [line] = axes.plot(series.x, series.y, color=series.colour, gid=group, **width)
    return line


def _set_axes(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FormatStrFormatter, NullLocator

    axes.margins(x=0.01 if chart.is_horizontal or not chart.categories else 0.05)
    for name, axis in (("x", chart.x), ("y", chart.y)):
        axes.set(**{f"{name}label": axis.title, f"{name}scale": "log" if axis.is_logarithmic else "linear"})
        if axis.limits:
            axes.set(**{f"{name}lim": axis.limits})
        elif not axis.is_logarithmic and axis.title:
            axes.set(**{f"{name}lim": (0, None)})
    for drawn, axis in ((axes.xaxis, chart.x), (axes.yaxis, chart.y)):
        if axis.is_logarithmic:
            drawn.set_major_formatter(FormatStrFormatter("%g"))
            drawn.set_minor_locator(NullLocator())
        if axis.ticks:
            drawn.set_ticks([value for value, _ in axis.ticks], [text for _, text in axis.ticks])
    if chart.categories:
        rows = axes.yaxis if chart.is_horizontal else axes.xaxis
        rows.set_ticks(range(len(chart.categories)), [to_line(name) for name in chart.categories])
    if chart.is_horizontal:
        axes.invert_yaxis()


def _draw_labels(axes: Axes, chart: Chart, placed: PlacedLabels) -> None:
    for label, text, place in zip(chart.labels, placed.texts, placed.places, strict=True):
        axes.annotate(
            to_line(text),
            (label.x, label.y),
            (place, 1.02),
            textcoords="axes fraction",
            rotation=0 if placed.is_level else 90,
            horizontalalignment="center",
            verticalalignment="bottom",
            arrowprops={"arrowstyle": "-", "color": GREY, "shrinkA": 0, "shrinkB": 5, "relpos": (0.5, 0)},
        )


def _tidy(written: str, chart: Chart, texts: Mapping[str, tuple[str, ...]]) -> str:
    """Return matplotlib's document as an element of a page: small, titled, and in the page's colours and font."""
    body = written[written.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"font(-family)?: [^;\"]*'DejaVu Sans'[^;\"]*;? ?", _keep_font_size, body)
    body = re.sub(r'\b(d|x|y|style|transform|width|height)="[^"<]*"', _round_numbers, body)
    body = re.sub(r"(?<=[MLQCz]) (?=[-\d])| ?\n(?=[MLQCz])", "", body)
    body = re.sub(r"\s*\n\s*", " ", body).replace(" xlink:href", " href").replace("> <", "><")
    for group, said in texts.items():
        body = _add_titles(body, group, said)
    body = re.sub(r'<g id="[^"]*"', "<g", body).replace(INK, "currentColor")
    shape = f'viewBox="0 0 {WIDTH_PX:g} {chart.height_px:g}" role="img" aria-label="{escape(chart.title)}"'
    return to_html(re.sub(r"<svg[^>]*>", f'<svg xmlns="http://www.w3.org/2000/svg" {shape}>', body, count=1))


def _keep_font_size(font: re.Match[str]) -> str:
    size = re.search(r"\d+(\.\d+)?px", font[0])
    return f"font-size: {size[0]}; " if size else ""


def _round_numbers(attribute: re.Match[str]) -> str:
    """Round to tenths of a pixel."""
    return re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), attribute[0])


def _add_titles(body: str, group: str, said: tuple[str, ...]) -> str:
    """Add what is said of a group's shapes: one text for all of it, or one for each shape within."""
    begin = body.find(f'<g id="{group}">')
    if begin < 0 or not any(said):
        return body
    begin += len(f'<g id="{group}">')
    if len(said) == 1:
        return f"{body[:begin]}{_make_title(said[0])}{body[begin:]}"
    end = body.index("</g>", body.index("<use", begin))
    shapes, titles = body[begin:end], iter(said)
    [style] = set(re.findall(r'<use[^>]* (style="[^"]*")', shapes))
    shapes = shapes.replace(f" {style}", "")
    shapes = re.sub(r"(<use[^>]*)/>", lambda use: f"{use[1]}>{_make_title(next(titles))}</use>", shapes)
    return f"{body[: begin - 1]} {style}>{shapes}{body[end:]}"


def _make_title(text: str) -> str:
    return f"<title>{escape(to_line(text))}</title>"
