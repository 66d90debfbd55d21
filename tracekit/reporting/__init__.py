"""The report: plain data, built once and rendered by every format in ``tracekit.render``."""

from tracekit.reporting.build import build_info, build_prediction_report, build_report
from tracekit.reporting.model import Report

__all__ = ["Report", "build_info", "build_prediction_report", "build_report"]
