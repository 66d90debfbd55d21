"""Timelines for Perfetto and chrome://tracing, in the PyTorch profiler's format."""

from tracekit.export.perfetto.document import render_timeline

__all__ = ["render_timeline"]
