"""Describe a chart: what it shows, apart from how a page or a notebook draws it."""

from dataclasses import dataclass
from typing import Literal

import polars as pl

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
        width_px: Width of the line.
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
        x: Horizontal axis.
        y: Vertical axis.
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
