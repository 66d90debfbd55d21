"""Draw a chart as SVG: text stays text, and what has no colour of its own takes that of the page."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, hypot, log10

from tracekit.escape import to_html, to_line
from tracekit.render.charts.model import CHAR_WIDTH_PX, Axis, Chart, Series, choose_ticks, place_labels
from tracekit.render.colours import GREY, IDLE_COLOUR

WIDTH_PX = 960.0
FONT_PX = 13
LINE_PX = 18.0
"""Height of a line of text."""
GAP_PX = 8.0
"""Between an axis and its ticks' texts."""
TICK_PX = 90.0
"""About so far apart are ticks that a chart doesn't name."""
ROW_TICK_PX = 30.0
IDLE_OPACITY = 0.1
POINT_OPACITY = 0.75
AREA_OPACITY = 0.8
DASHES = {"solid": (), "dash": (5, 3), "dot": (1, 2), "dashdot": (5, 2, 1, 2), "longdash": (9, 3)}
"""Drawn and left out, in turns, in widths of the line."""
BAR_WIDTH = 0.72
"""As a fraction of its row."""
MIN_BAR_FRACTION = 2e-3
"""Parts of a bar below this fraction of the longest are thinner than two pixels."""
SWATCH_PX = 21.0
LEGEND_GAP_PX = 12.0
LEGEND_COLUMNS = 7
LEADER_GAP_PX = 5.0
"""Between a point and the line to its label."""
MARGINS = {"x": 0.01, "y": 0.05}
"""Fraction of an axis left free where its limits follow from the data."""
NICE_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class _Scale:
    """An axis in the picture.

    Attributes:
        low: Its lowest value.
        high: Its highest one.
        begin_px: Where the lowest value stands.
        end_px: Where the highest one does.
    """

    axis: Axis
    low: float
    high: float
    begin_px: float = 0.0
    end_px: float = 0.0

    def locate(self, value: float) -> float:
        """Return where a value stands."""
        low, place, high = (log10(at) if self.axis.is_logarithmic else at for at in (self.low, value, self.high))
        return self.begin_px + (place - low) / (high - low) * (self.end_px - self.begin_px)

    def list_ticks(self, apart_px: float) -> Sequence[tuple[float, str]]:
        """List the values that are named, each with its text."""
        if self.axis.ticks:
            return self.axis.ticks
        if self.axis.is_logarithmic:
            powers = choose_ticks((self.low, self.high), (1,), "{:g}")
            return powers if len(powers) > 1 else choose_ticks((self.low, self.high))
        least = (self.high - self.low) * apart_px / abs(self.end_px - self.begin_px)
        power = 10.0 ** floor(log10(least))
        step = next(nice * power for nice in NICE_STEPS if nice * power >= least)
        decimals = next(digits for digits in range(16) if round(step, digits) == round(step, 15))
        places = (number * step for number in range(ceil(self.low / step), floor(self.high / step) + 1))
        return [(place, f"{place:,.{decimals}f}") for place in places]


def draw_svg(chart: Chart) -> str:
    """Return a chart as an SVG element, without a request, a script or an id."""
    shape = f'viewBox="0 0 {WIDTH_PX:g} {chart.height_px:g}" role="img" aria-label="{escape(chart.title)}"'
    body = "".join(_draw_chart(chart))
    style = f'font-size="{FONT_PX}" fill="currentColor"'
    return to_html(f'<svg xmlns="http://www.w3.org/2000/svg" {shape} {style}>{body}</svg>')


def _draw_chart(chart: Chart) -> Iterator[str]:
    shown = {one.name: one for one in chart.series if one.is_in_legend}
    legend, legend_px = _draw_legend([*shown.values()]) if len(shown) > 1 else ("", 0.0)
    x, y = _find_scale(chart, "x"), _find_scale(chart, "y")
    top = GAP_PX + legend_px + place_labels(chart).height_px
    bottom = chart.height_px - GAP_PX - LINE_PX * (1 + bool(x.axis.title))
    upward = (top, bottom) if chart.is_horizontal else (bottom, top)
    y = _Scale(y.axis, y.low, y.high, *upward)
    rows = _name_rows(chart) if chart.is_horizontal else y.list_ticks(ROW_TICK_PX)
    left = GAP_PX + LINE_PX * bool(y.axis.title) + max((_measure(text) for _, text in rows), default=0.0)
    x = _Scale(x.axis, x.low, x.high, left, WIDTH_PX - 2 * GAP_PX)
    places = _name_rows(chart) if chart.categories and not chart.is_horizontal else x.list_ticks(TICK_PX)
    yield legend
    if chart.is_horizontal or not chart.categories:
        yield _draw_grid(f"M{_px(x.locate(value))} {_px(top)}V{_px(bottom)}" for value, _ in places)
    if not chart.is_horizontal:
        yield _draw_grid(f"M{_px(left)} {_px(y.locate(value))}H{_px(x.end_px)}" for value, _ in rows)
    yield from _draw_series(chart, x, y)
    yield from _draw_labels(chart, x, y)
    yield '<g text-anchor="end">'
    yield from (_write(text, left - GAP_PX, y.locate(value) + FONT_PX / 3) for value, text in rows)
    yield '</g><g text-anchor="middle">'
    yield from (_write(text, x.locate(value), bottom + LINE_PX) for value, text in _thin_out(places, x))
    yield _write(x.axis.title, (left + x.end_px) / 2, chart.height_px - GAP_PX / 2)
    yield _write(y.axis.title, FONT_PX, (top + bottom) / 2, is_upright=True)
    yield "</g>"


def _find_scale(chart: Chart, name: str) -> _Scale:
    """Find the values between which an axis lies."""
    axis: Axis = getattr(chart, name)
    if axis.limits:
        return _Scale(axis, *axis.limits)
    if chart.categories and (name == "y") is chart.is_horizontal:
        return _Scale(axis, -0.5, len(chart.categories) - 0.5)
    values = [value for one in chart.series for value in (one.x if name == "x" and not chart.categories else one.y)]
    if any(one.kind in ("bars", "areas") for one in chart.series) and (name == "y" or chart.is_horizontal):
        values = [sum(stacked) for stacked in zip(*(one.y for one in chart.series), strict=True)]
    low, high = min(values, default=0.0), max(values, default=1.0) or 1.0
    if not axis.is_logarithmic:
        return _Scale(axis, min(low, 0.0), (1 + MARGINS[name]) * high)
    factor = (high / low) ** MARGINS[name] if high > low else 10.0
    return _Scale(axis, low / factor, high * factor)


def _name_rows(chart: Chart) -> list[tuple[float, str]]:
    return [(float(place), to_line(name)) for place, name in enumerate(chart.categories)]


def _thin_out(ticks: Sequence[tuple[float, str]], scale: _Scale) -> Sequence[tuple[float, str]]:
    """Leave out ticks whose texts have no room beside each other."""
    room_px = abs(scale.end_px - scale.begin_px)
    needed_px = sum(_measure(text) + GAP_PX for _, text in ticks)
    return ticks[:: ceil(needed_px / room_px)] if ticks else ticks


def _draw_series(chart: Chart, x: _Scale, y: _Scale) -> Iterator[str]:
    begins = [0.0] * max((len(one.y) for one in chart.series), default=0)
    for series in chart.series:
        if series.kind in ("bars", "areas"):
            ends = [begin + length for begin, length in zip(begins, series.y, strict=True)]
            yield (
                _draw_bars(chart, series, x, y, begins)
                if series.kind == "bars"
                else _draw_area(series, x, y, begins, ends)
            )
            begins = ends
        elif series.kind == "points":
            yield _draw_points(series, x, y)
        else:
            yield _draw_line(series, x, y)


def _draw_bars(chart: Chart, series: Series, x: _Scale, y: _Scale, begins: Sequence[float]) -> str:
    along, across = (x, y) if chart.is_horizontal else (y, x)
    longest = max(map(sum, zip(*(one.y for one in chart.series), strict=True)))
    bars = []
    for place, (begin, length, text) in enumerate(zip(begins, series.y, series.texts, strict=True)):
        if length <= MIN_BAR_FRACTION * longest:
            continue
        (begin_px, end_px), (low_px, high_px) = (
            sorted(ends)
            for ends in (
                (along.locate(begin), along.locate(begin + length)),
                (across.locate(place - BAR_WIDTH / 2), across.locate(place + BAR_WIDTH / 2)),
            )
        )
        corner, size = (begin_px, low_px), (end_px - begin_px, high_px - low_px)
        (left, top), (width, height) = (corner, size) if chart.is_horizontal else (corner[::-1], size[::-1])
        shape = f'x="{_px(left)}" y="{_px(top)}" width="{_px(width)}" height="{_px(height)}"'
        bars.append(f"<rect {shape}>{_make_title(text)}</rect>")
    return f"<g {_fill(series)}>{''.join(bars)}</g>"


def _draw_area(series: Series, x: _Scale, y: _Scale, begins: Sequence[float], ends: Sequence[float]) -> str:
    upper = [(x.locate(at), y.locate(end)) for at, end in zip(series.x, ends, strict=True)]
    lower = [(x.locate(at), y.locate(begin)) for at, begin in zip(series.x, begins, strict=True)]
    return f'<path {_fill(series)} d="{_trace([*upper, *reversed(lower)])}z">{_make_title(*series.texts[:1])}</path>'


def _draw_line(series: Series, x: _Scale, y: _Scale) -> str:
    points = [(x.locate(at), y.locate(value)) for at, value in zip(series.x, series.y, strict=True)]
    return f'<path {_stroke(series)} d="{_trace(points)}">{_make_title(*series.texts[:1])}</path>'


def _draw_points(series: Series, x: _Scale, y: _Scale) -> str:
    """Draw the largest points first, so that none is hidden."""
    rows = zip(series.sizes_px, series.x, series.y, series.texts, strict=True)
    shapes = (
        _draw_marker(series, x.locate(at), y.locate(value), size, text)
        for size, at, value, text in sorted(rows, key=lambda row: -row[0])
    )
    return f"<g {_fill(series)}>{''.join(shapes)}</g>"


def _draw_marker(series: Series, x_px: float, y_px: float, size_px: float, text: str = "") -> str:
    title, half = _make_title(text) if text else "", _px(size_px / 2)
    if series.marker == "circle":
        return f'<circle cx="{_px(x_px)}" cy="{_px(y_px)}" r="{half}">{title}</circle>'
    # As high and as wide as its side's diagonal.
    half = _px(size_px / 2**0.5)
    return f'<path d="M{_px(x_px)} {_px(y_px)}m-{half} 0l{half} -{half} {half} {half} -{half} {half}z">{title}</path>'


def _draw_labels(chart: Chart, x: _Scale, y: _Scale) -> Iterator[str]:
    """Yield the names above the plot and the lines from them to their points."""
    placed = place_labels(chart)
    above = y.end_px - GAP_PX
    for label, text, place in zip(chart.labels, placed.texts, placed.places, strict=True):
        at = x.begin_px + place * (x.end_px - x.begin_px)
        x_px, y_px = x.locate(label.x), y.locate(label.y)
        length_px = hypot(x_px - at, y_px - above)
        part = max(1 - LEADER_GAP_PX / length_px, 0.0) if length_px else 0.0
        line = _trace([(at, above), (at + part * (x_px - at), above + part * (y_px - above))])
        yield f'<path stroke="{GREY}" d="{line}"/>'
        anchor = "middle" if placed.is_level else "start"
        shift = 0.0 if placed.is_level else FONT_PX / 3
        written = _write(to_line(text), at + shift, above - 2, is_upright=not placed.is_level)
        yield f'<g text-anchor="{anchor}">{written}</g>'


def _draw_legend(series: Sequence[Series]) -> tuple[str, float]:
    """Draw what each series is, and return the height of that."""
    wide_px = max(SWATCH_PX + GAP_PX + _measure(one.name) + LEGEND_GAP_PX for one in series)
    columns = max(min(LEGEND_COLUMNS, int(WIDTH_PX / wide_px)), 1)
    parts = []
    for number, one in enumerate(series):
        row, column = divmod(number, columns)
        x_px, y_px = column * wide_px, (row + 1) * LINE_PX
        parts.append(_draw_swatch(one, x_px, y_px - FONT_PX / 3))
        parts.append(_write(to_line(one.name), x_px + SWATCH_PX + GAP_PX, y_px))
    return "".join(parts), y_px


def _draw_swatch(series: Series, x_px: float, middle_px: float) -> str:
    if series.kind == "lines":
        return f'<path {_stroke(series)} d="M{_px(x_px)} {_px(middle_px)}h{SWATCH_PX:g}"/>'
    if series.kind == "points":
        return f"<g {_fill(series)}>{_draw_marker(series, x_px + SWATCH_PX / 2, middle_px, 9)}</g>"
    corner = f'x="{_px(x_px)}" y="{_px(middle_px - 4.5)}"'
    return f'<rect {_fill(series)} {corner} width="{SWATCH_PX:g}" height="9"/>'


def _draw_grid(lines: Iterable[str]) -> str:
    return f'<path stroke="currentColor" stroke-opacity="0.1" stroke-width="0.8" d="{"".join(lines)}"/>'


def _fill(series: Series) -> str:
    if series.colour == IDLE_COLOUR:
        return f'fill-opacity="{IDLE_OPACITY}"'
    opacity = {"points": POINT_OPACITY, "areas": AREA_OPACITY}.get(series.kind)
    return f'fill="{series.colour}"' + (f' fill-opacity="{opacity}"' if opacity else "")


def _stroke(series: Series) -> str:
    dash = " ".join(f"{series.width_px * part:g}" for part in DASHES[series.dash])
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'fill="none" stroke="{series.colour}" stroke-width="{series.width_px:g}" stroke-linejoin="round"{dashed}'


def _trace(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_px(x)} {_px(y)}" for x, y in points)


def _write(text: str, x_px: float, y_px: float, *, is_upright: bool = False) -> str:
    """Write a text, or from bottom to top."""
    if not text:
        return ""
    turned = f' transform="rotate(-90 {_px(x_px)} {_px(y_px)})"' if is_upright else ""
    return f'<text x="{_px(x_px)}" y="{_px(y_px)}"{turned}>{escape(text)}</text>'


def _make_title(text: str = "") -> str:
    return f"<title>{escape(to_line(text))}</title>" if text else ""


def _measure(text: str) -> float:
    """Return about how wide a text is: the page chooses its font."""
    return CHAR_WIDTH_PX * len(text)


def _px(value: float) -> str:
    """Round to tenths of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
