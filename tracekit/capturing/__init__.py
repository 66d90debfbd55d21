"""Predict a program that never ran: its ops from a run on tensors without data, its kernels from these."""

from tracekit.capturing.program import CapturedProgram, capture
from tracekit.capturing.timed_trace import load_captured

__all__ = ["CapturedProgram", "capture", "load_captured"]
