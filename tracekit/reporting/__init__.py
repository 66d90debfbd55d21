"""The report: plain data, built once and drawn by every format in tracekit.render."""

from tracekit.reporting.build import build, of_predictions
from tracekit.reporting.model import Report

__all__ = ["Report", "build", "of_predictions"]
