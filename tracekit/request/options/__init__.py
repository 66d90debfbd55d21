"""The options of a prediction, a sweep, a report and an export, each declared once.

A group holds options that several requests have. A request inherits from its groups; the last one's options come first.
"""

from tracekit.request.options.layout import LayoutOptions, ScheduleOptions, SweepRequest
from tracekit.request.options.predict import (
    EXPORT_SUFFIXES,
    ExportFormat,
    ExportRequest,
    FleetRequest,
    PredictRequest,
    ReportRequest,
)
from tracekit.request.options.run import EditOptions, RunOptions, StepOptions
from tracekit.request.options.serving import ServingRequest
from tracekit.request.options.shard import ShardRequest
from tracekit.request.options.target import DecisionOptions, TargetOptions

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
    "ServingRequest",
    "ShardRequest",
    "StepOptions",
    "SweepRequest",
    "TargetOptions",
]
