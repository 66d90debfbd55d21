"""The sides of a comparison that a stored report offers: the measured run and every prediction."""

from collections.abc import Mapping

from tracekit.reporting.comparison import ComparisonSide, make_measured_side, make_predicted_side
from tracekit.reporting.model import Report

MEASURED_LABEL = ""

Sides = Mapping[str, ComparisonSide]
"""Sides by the target's label; the key of the measured run is :data:`MEASURED_LABEL`."""


def make_sides(report: Report, name: str) -> Sides:
    """Make the sides of a report; ``name`` is the display name of its run."""
    return {MEASURED_LABEL: make_measured_side(report, name)} | {
        target.label: make_predicted_side(report, place, f"{name}, predicted on {target.label}")
        for place, target in enumerate(report.targets)
    }


def choose_sides(a: Sides, b: Sides) -> tuple[str, str]:
    """Choose the sides of two reports to compare.

    A prediction is compared with a measurement on its GPU; without such a pair, the measured runs are compared.
    """
    for label, side in a.items():
        if label != MEASURED_LABEL and side.gpu == b[MEASURED_LABEL].gpu:
            return label, MEASURED_LABEL
    for label, side in b.items():
        if label != MEASURED_LABEL and side.gpu == a[MEASURED_LABEL].gpu:
            return MEASURED_LABEL, label
    return MEASURED_LABEL, MEASURED_LABEL
