"""What a comparison needs of a report, kept beside it: the measured run, and every prediction."""

from collections.abc import Mapping

import msgspec
import polars as pl

from tracekit.reporting.comparison import Side, kernel_table, of_prediction, of_report
from tracekit.reporting.model import Report

MEASURED = ""
FILE = "sides.json"

Sides = Mapping[str, Side]
"""By the target's label; the measured run by :data:`MEASURED`."""


def pack(report: Report, name: str) -> bytes:
    """The sides of a report.

    Args:
        report: The report.
        name: What to call its run.
    """
    sides = {MEASURED: of_report(report, name)} | {
        target.label: of_prediction(report, target, f"{name}, predicted on {target.label}") for target in report.targets
    }
    return msgspec.json.encode(sides, enc_hook=lambda frame: frame.to_dict(as_series=False))


def unpack(content: bytes) -> Sides:
    """What :func:`pack` wrote."""
    return msgspec.json.decode(content, type=dict[str, Side], dec_hook=_frame)


def _frame(kind: type, columns: dict[str, list[object]]) -> pl.DataFrame:
    return pl.DataFrame(columns, schema=kernel_table(()).schema)


def likely(a: Sides, b: Sides) -> tuple[str, str]:
    """What to compare of two reports: a prediction with what was measured on that GPU, else the measured runs."""
    for label, side in a.items():
        if label != MEASURED and side.gpu == b[MEASURED].gpu:
            return label, MEASURED
    for label, side in b.items():
        if label != MEASURED and side.gpu == a[MEASURED].gpu:
            return MEASURED, label
    return MEASURED, MEASURED
