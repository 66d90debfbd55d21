"""Labels of points on a chart: in a row above them, side by side however close the points are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracekit.arrays import Floats
from tracekit.render.colours import GREY
from tracekit.units import shorten

LONGEST = 20
LETTER_PX = 7.5
NARROWEST_PX = 500.0
"""Width of the narrowest plot, which the labels have to fit."""
HEIGHT_PX = 380.0
LINE_PX = 14.0
MARGIN_PX = 10.0


@dataclass(frozen=True, slots=True)
class Points:
    """What is labelled, in order of ``x``.

    Attributes:
        names: What the labels say.
        x: Where the points are, on a logarithmic axis its exponents.
        y: How high, likewise.
        left: Where the axis begins.
        right: Where it ends.
        top: Where the other axis ends.
    """

    names: Sequence[str]
    x: Sequence[float]
    y: Sequence[float]
    left: float
    right: float
    top: float


def room(names: Sequence[str]) -> float:
    """Part of the chart's height that the row of labels takes."""
    if not names:
        return 0.0
    return ((LINE_PX if _level(names) else _width_px(names)) + MARGIN_PX) / HEIGHT_PX


def labels(points: Points) -> list[dict[str, Any]]:
    """Plotly's annotations: level where all fit so, else upright, each with a line to its point."""
    if not points.names:
        return []
    level = _level(points.names)
    slot = min((_width_px(points.names) if level else LINE_PX) / NARROWEST_PX, 1 / len(points.names))
    wide = points.right - points.left
    places = spread((np.asarray(points.x) - points.left) / wide, slot) * wide + points.left
    angle = 0 if level else -90
    above = 1 - room(points.names)
    return [
        part
        for name, place, x, y in zip(points.names, places.tolist(), points.x, points.y, strict=True)
        for part in (_text(name, angle, place, above), _line(x, y, place, points.top))
    ]


def _text(name: str, angle: int, place: float, above: float) -> dict[str, Any]:
    return {
        "text": shorten(name, LONGEST),
        "textangle": angle,
        "showarrow": False,
        "x": place,
        "yref": "paper",
        "y": above,
        "yanchor": "bottom",
        "font": {"size": 12},
    }


def _line(x: float, y: float, place: float, top: float) -> dict[str, Any]:
    """An arrow without head or text, as only arrows can begin at one height and end at another."""
    return {
        "text": "",
        "x": x,
        "y": y,
        "ax": place,
        "ay": top,
        "axref": "x",
        "ayref": "y",
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": GREY,
        "standoff": 5,
    }


def spread(wanted: Floats, slot: float) -> Floats:
    """Places at least ``slot`` apart between 0 and 1 near those wanted, which ascend: pushed left and right evenly."""
    steps = slot * np.arange(len(wanted))
    first, last = slot / 2, 1 - slot / 2
    rightward = np.minimum(np.maximum.accumulate(np.maximum(wanted, first) - steps), last - steps[-1])
    leftward = np.maximum(np.minimum.accumulate((np.minimum(wanted, last) - steps)[::-1])[::-1], first)
    places: Floats = (rightward + leftward) / 2 + steps
    return places


def _width_px(names: Sequence[str]) -> float:
    return LETTER_PX * min(max(map(len, names)), LONGEST) + MARGIN_PX


def _level(names: Sequence[str]) -> bool:
    return len(names) * _width_px(names) <= NARROWEST_PX
