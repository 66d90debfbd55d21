"""Place the labels of chart points in one row above the plot, without overlap."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracekit.arrays import Floats
from tracekit.format import shorten
from tracekit.render.colours import GREY

MAX_LABEL_CHARS = 20
CHAR_WIDTH_PX = 7.5
MIN_PLOT_WIDTH_PX = 500.0
"""Width of the narrowest plot; the labels must fit into it."""
PLOT_HEIGHT_PX = 380.0
LINE_HEIGHT_PX = 14.0
MARGIN_PX = 10.0


@dataclass(frozen=True, slots=True)
class LabelledPoints:
    """Points to label, in ascending order of ``x``.

    Attributes:
        names: Texts of the labels.
        x: Horizontal coordinates; exponents of ten on a logarithmic axis.
        y: Vertical coordinates, likewise.
        left: Start of the horizontal axis.
        right: End of the horizontal axis.
        top: End of the vertical axis.
    """

    names: Sequence[str]
    x: Sequence[float]
    y: Sequence[float]
    left: float
    right: float
    top: float


def compute_label_fraction(names: Sequence[str]) -> float:
    """Return the fraction of the chart's height that the row of labels takes."""
    if not names:
        return 0.0
    return (
        (LINE_HEIGHT_PX if _fit_horizontally(names) else _compute_label_width_px(names)) + MARGIN_PX
    ) / PLOT_HEIGHT_PX


def build_annotations(points: LabelledPoints) -> list[dict[str, Any]]:
    """Build plotly annotations: horizontal labels if all fit, else vertical ones, each with a line to its point."""
    if not points.names:
        return []
    level = _fit_horizontally(points.names)
    slot = min(
        (_compute_label_width_px(points.names) if level else LINE_HEIGHT_PX) / MIN_PLOT_WIDTH_PX, 1 / len(points.names)
    )
    wide = points.right - points.left
    places = spread_positions((np.asarray(points.x) - points.left) / wide, slot) * wide + points.left
    angle = 0 if level else -90
    above = 1 - compute_label_fraction(points.names)
    return [
        part
        for name, place, x, y in zip(points.names, places.tolist(), points.x, points.y, strict=True)
        for part in (_build_text(name, angle, place, above), _build_leader(x, y, place, points.top))
    ]


def _build_text(name: str, angle: int, place: float, above: float) -> dict[str, Any]:
    return {
        "text": shorten(name, MAX_LABEL_CHARS),
        "textangle": angle,
        "showarrow": False,
        "x": place,
        "yref": "paper",
        "y": above,
        "yanchor": "bottom",
        "font": {"size": 12},
    }


def _build_leader(x: float, y: float, place: float, top: float) -> dict[str, Any]:
    """Build a leader line: an arrow without head or text, as plotly only lets arrows span two heights."""
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


def _compute_label_width_px(names: Sequence[str]) -> float:
    return CHAR_WIDTH_PX * min(max(map(len, names)), MAX_LABEL_CHARS) + MARGIN_PX


def _fit_horizontally(names: Sequence[str]) -> bool:
    return len(names) * _compute_label_width_px(names) <= MIN_PLOT_WIDTH_PX
