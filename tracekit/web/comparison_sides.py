"""Comparison data stored beside a report: the measured run and every prediction."""

from collections.abc import Mapping

import msgspec
import polars as pl

from tracekit.reporting.comparison import ComparisonSide, build_kernel_table, make_measured_side, make_predicted_side
from tracekit.reporting.model import Report

MEASURED_LABEL = ""
SIDES_FILE = "sides.json"

Sides = Mapping[str, ComparisonSide]
"""Sides by the target's label; the key of the measured run is :data:`MEASURED_LABEL`."""


def encode_sides(report: Report, name: str) -> bytes:
    """Encode the sides of a report.

    Args:
        report: The report.
        name: Display name of its run.
    """
    sides = {MEASURED_LABEL: make_measured_side(report, name)} | {
        target.label: make_predicted_side(report, target, f"{name}, predicted on {target.label}")
        for target in report.targets
    }
    return msgspec.json.encode(sides, enc_hook=lambda frame: frame.to_dict(as_series=False))


def decode_sides(content: bytes) -> Sides:
    """Decode the output of :func:`encode_sides`."""
    return msgspec.json.decode(content, type=dict[str, ComparisonSide], dec_hook=_decode_frame)


def _decode_frame(kind: type, columns: dict[str, list[object]]) -> pl.DataFrame:
    return pl.DataFrame(columns, schema=build_kernel_table(()).schema)


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
