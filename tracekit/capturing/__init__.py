"""Predict a program that never ran: its ops from a run on tensors without data, its kernels from these."""

from tracekit.capturing.predict import predict_captured
from tracekit.capturing.program import CapturedProgram, capture
from tracekit.capturing.steps import CapturedStep

__all__ = ["CapturedProgram", "CapturedStep", "capture", "predict_captured"]
