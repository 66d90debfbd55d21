"""The options of a prediction, a sweep, a report and an export, each declared once.

A group holds options that several requests have. A request inherits from its groups; the last one's options come first.
"""

from tracekit.request.options.decision import DecisionOptions
from tracekit.request.options.edits import EditOptions
from tracekit.request.options.export_format import EXPORT_SUFFIXES, ExportFormat
from tracekit.request.options.layout import LayoutOptions, ScheduleOptions
from tracekit.request.options.predict import ExportRequest, FleetRequest, PredictRequest, ReportRequest
from tracekit.request.options.run import RunOptions, StepOptions
from tracekit.request.options.shard import ShardRequest
from tracekit.request.options.sweep import SweepRequest
from tracekit.request.options.target import TargetOptions

__all__ = [
    "EXPORT_SUFFIXES",
    "DecisionOptions",
    "EditOptions",
    "ExportFormat",
    "ExportRequest",
    "FleetRequest",
    "LayoutOptions",
    "PredictRequest",
    "ReportRequest",
    "RunOptions",
    "ScheduleOptions",
    "ShardRequest",
    "StepOptions",
    "SweepRequest",
    "TargetOptions",
]
