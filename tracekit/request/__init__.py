"""What a user asks: every option declared and checked once, for the command line, Python, the web API and the page.

To add an option, add a field to the group in :mod:`tracekit.request.options` that it belongs to, and use it in
:mod:`tracekit.request.answers`. All front ends show it then, under the field's name.
"""

from tracekit.request.option import Option, Panel, Request, RequestField, list_fields
from tracekit.request.options import (
    ExportFormat,
    ExportRequest,
    FleetRequest,
    PredictRequest,
    ReportRequest,
    RunOptions,
    ServingRequest,
    ShardRequest,
    StepOptions,
    SweepRequest,
)

__all__ = [
    "ExportFormat",
    "ExportRequest",
    "FleetRequest",
    "Option",
    "Panel",
    "PredictRequest",
    "ReportRequest",
    "Request",
    "RequestField",
    "RunOptions",
    "ServingRequest",
    "ShardRequest",
    "StepOptions",
    "SweepRequest",
    "list_fields",
]
