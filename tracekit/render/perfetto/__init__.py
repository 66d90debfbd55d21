"""Timelines for Perfetto and chrome://tracing, in the profiler's own dialect."""

from tracekit.render.perfetto.document import document

__all__ = ["document"]
