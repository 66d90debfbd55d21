"""Place the labels of a chart's points in one row above the plot, without overlap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Floats
from tracekit.format import shorten
from tracekit.render.charts.model import Axis, Chart

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
    width_px = _compute_label_width_px(names)
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


def _compute_label_width_px(names: Sequence[str]) -> float:
    return CHAR_WIDTH_PX * min(max(map(len, names)), MAX_LABEL_CHARS) + MARGIN_PX
