"""One timeline to draw."""

from dataclasses import dataclass

import polars as pl

from tracekit.replay.engine import Timeline
from tracekit.replay.run import Run


@dataclass(frozen=True, slots=True)
class Lane:
    """One timeline to draw.

    Attributes:
        place: 0 for the measured one, then the targets in order.
        label: ``measured``, or on what it is predicted.
        gpu_name: Full name of its GPU.
        run: The run that it is a timeline of: a predicted one also has the kernels that a layout adds.
        timeline: Start and end of everything.
        path: Its critical path, piece by piece.
        idle: Each kernel that the GPU stood idle before, with the ``cause`` of most of that.
        origin_ns: The moment to draw at 0.
        time_us: What each kernel takes.
        bound_us: The least that it could take there; null where that isn't known.
    """

    place: int
    label: str
    gpu_name: str
    run: Run
    timeline: Timeline
    path: pl.DataFrame
    idle: pl.DataFrame
    origin_ns: int
    time_us: pl.Series
    bound_us: pl.Series
