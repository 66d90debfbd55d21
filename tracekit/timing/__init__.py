"""Recorded times checked against physics, before a graph is built from them.

A kernel starts after its launch; activities of a stream end in order; a blocking call returns after what it waited for.
Public traces hold all three within 4 us. Times that break them are corrected where the cause is clear, and counted.
"""

from tracekit.timing.correct import correct_times

__all__ = ["correct_times"]
