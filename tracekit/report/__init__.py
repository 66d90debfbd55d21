"""The report: plain data, built once and drawn by every format in tracekit.render."""

from tracekit.report.build import build
from tracekit.report.model import Report

__all__ = ["Report", "build"]
