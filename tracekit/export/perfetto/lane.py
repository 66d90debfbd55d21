"""One timeline to draw."""

from dataclasses import dataclass

import polars as pl

from tracekit.program import Program
from tracekit.replay.engine import Timeline


@dataclass(frozen=True, slots=True)
class Lane:
    """One timeline to draw.

    Attributes:
        index: 0 for the measured timeline; the targets follow in order.
        label: ``measured``, ``synthetic`` or ``captured``, as the report has it, or ``predicted on`` and the target.
        gpu_name: Full name of the GPU.
        program: The program of this timeline; a predicted one also has the kernels that a layout inserts.
        timeline: Start and end of each node.
        critical_path: Pieces of the critical path in order.
        idle_causes: Each kernel that follows GPU idle time, with the ``cause`` of most of that time.
        origin_ns: The time to draw at 0.
        end_ns: The last time to draw, from there.
        time_us: Time of each kernel.
        bound_us: Roofline time of each kernel on this GPU; null where unknown.
    """

    index: int
    label: str
    gpu_name: str
    program: Program
    timeline: Timeline
    critical_path: pl.DataFrame
    idle_causes: pl.DataFrame
    origin_ns: int
    end_ns: int
    time_us: pl.Series
    bound_us: pl.Series
