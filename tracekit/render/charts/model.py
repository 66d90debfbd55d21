"""Describe a chart: what it shows, apart from how a page or a notebook draws it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

import numpy as np
import polars as pl

from tracekit.arrays import Floats
from tracekit.format import shorten

DIGITS = 6
"""Significant digits of values in tables."""
Values = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a chart.

    Attributes:
        title: Quantity and unit.
        is_logarithmic: Whether equal ratios have equal lengths.
        limits: Lowest and highest value; ``None`` to fit the data.
        ticks: Values with a text each; empty to choose them by the data.
    """

    title: str
    is_logarithmic: bool = False
    limits: tuple[float, float] | None = None
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values that belong together.

    Attributes:
        name: What they are, for the legend.
        kind: ``bars`` and ``areas`` are stacked on those before them.
        x: Horizontal coordinates; of bars the places of their categories.
        y: Vertical coordinates; of bars their lengths.
        colour: Colour as ``#rrggbb``.
        texts: What is said of each value where a pointer rests on it.
        sizes_px: Diameters of the points.
        dash: ``solid``, ``dash``, ``dot``, ``dashdot`` or ``longdash``.
        marker: ``circle`` or ``diamond``.
        is_in_legend: Whether the legend names it.
    """

    name: str
    kind: Literal["bars", "lines", "areas", "points"]
    x: Values
    y: Values
    colour: str
    texts: tuple[str, ...] = ()
    sizes_px: Values = ()
    dash: str = "solid"
    width_px: float = 1.5
    marker: str = "circle"
    is_in_legend: bool = True


@dataclass(frozen=True, slots=True)
class Label:
    """A name above the plot, with a line to its point."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart of the report.

    Attributes:
        name: Stable name, such as ``roofline``.
        title: What it shows.
        series: What is drawn, first to last.
        categories: Names of the places where bars stand, or of the rows of points.
        is_horizontal: Whether bars lie.
        labels: Names above the plot, in ascending order of ``x``; both axes need limits then.
        is_over_time: Whether all series have the same horizontal coordinates.
        height_px: Height where its width is 960 pixels.
    """

    name: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    categories: tuple[str, ...] = ()
    is_horizontal: bool = False
    labels: tuple[Label, ...] = ()
    is_over_time: bool = False
    height_px: float = 360.0

    def to_table(self) -> pl.DataFrame:
        """Return the values that are drawn: a row each, or a column for each series of a chart over time."""
        if self.is_over_time:
            columns = {series.name: series.y for series in self.series}
            rows = pl.DataFrame({self.x.title: self.series[0].x, **columns}, strict=False)
        else:
            rows = pl.concat(self._to_rows(one) for one in self.series) if self.series else pl.DataFrame()
        return rows.with_columns(pl.selectors.float().round_sig_figs(DIGITS))

    def _to_rows(self, series: Series) -> pl.DataFrame:
        is_lying = self.is_horizontal and series.kind != "bars"
        places, lengths = (series.y, series.x) if is_lying else (series.x, series.y)
        columns: dict[str, object] = {"series": [series.name] * len(places)}
        if self.categories:
            names = [self.categories[int(place)] for place in places]
            columns |= {"row": names, self.x.title or self.y.title: lengths}
        else:
            texts = series.texts if series.kind == "points" else ()
            columns |= {self.x.title: series.x, self.y.title: series.y, "detail": [*texts] or [""] * len(places)}
        return pl.DataFrame(columns, strict=False)


MULTIPLES = (1, 2, 5)


def choose_ticks(
    limits: tuple[float, float], multiples: Sequence[float] = MULTIPLES, form: str = "{:,.10g}"
) -> tuple[tuple[float, str], ...]:
    """Return the given multiples of each power of ten within the limits, each with its text."""
    powers = range(floor(log10(limits[0])), ceil(log10(limits[1])))
    values = [multiple * 10.0**power for power in powers for multiple in multiples]
    return tuple((value, form.format(value)) for value in values if limits[0] <= value <= limits[1])


MAX_LABEL_CHARS = 20
CHAR_WIDTH_PX = 7.5
MIN_PLOT_WIDTH_PX = 500.0
"""Width of the narrowest plot; the labels must fit into it."""
LINE_HEIGHT_PX = 14.0
MARGIN_PX = 10.0


@dataclass(frozen=True, slots=True)
class PlacedLabels:
    """Where the labels of a chart stand.

    Attributes:
        texts: The labels, shortened.
        places: Where each stands, as a fraction of the horizontal axis.
        is_level: Whether they are written horizontally; else from bottom to top.
        height_px: Height of the row.
    """

    texts: tuple[str, ...]
    places: tuple[float, ...]
    is_level: bool
    height_px: float


def place_labels(chart: Chart) -> PlacedLabels:
    """Place a chart's labels: horizontal ones if all fit, else vertical ones, each near its point."""
    names = [label.text for label in chart.labels]
    if not names:
        return PlacedLabels((), (), True, 0.0)
    width_px = CHAR_WIDTH_PX * min(max(map(len, names)), MAX_LABEL_CHARS) + MARGIN_PX
    is_level = len(names) * width_px <= MIN_PLOT_WIDTH_PX
    slot = min((width_px if is_level else LINE_HEIGHT_PX) / MIN_PLOT_WIDTH_PX, 1 / len(names))
    places = spread_positions(_locate(chart.x, [label.x for label in chart.labels]), slot)
    texts = tuple(shorten(name, MAX_LABEL_CHARS) for name in names)
    height_px = (LINE_HEIGHT_PX if is_level else width_px) + MARGIN_PX
    return PlacedLabels(texts, tuple(places.tolist()), is_level, height_px)


def _locate(axis: Axis, values: Sequence[float]) -> Floats:
    """Return values as fractions of the axis."""
    assert axis.limits, "the axes of labelled charts have limits"
    scale = np.log10 if axis.is_logarithmic else np.asarray
    low, high = scale(axis.limits)
    places: Floats = np.clip((scale(values) - low) / (high - low), 0, 1)
    return places


def spread_positions(wanted: Floats, slot: float) -> Floats:
    """Return positions in [0, 1], at least ``slot`` apart, close to the ascending ``wanted`` positions.

    Two passes push the positions right and left; the result is their mean. With ``slot`` 0.2, wanted positions
    [0.5, 0.5] become [0.4, 0.6]: the right pass gives [0.5, 0.7], the left pass [0.3, 0.5].
    """
    steps = slot * np.arange(len(wanted))
    first, last = slot / 2, 1 - slot / 2
    rightward = np.minimum(np.maximum.accumulate(np.maximum(wanted, first) - steps), last - steps[-1])
    leftward = np.maximum(np.minimum.accumulate((np.minimum(wanted, last) - steps)[::-1])[::-1], first)
    places: Floats = (rightward + leftward) / 2 + steps
    return places
