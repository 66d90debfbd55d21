"""A trace: the facts that one rank's profiler recorded, as typed tables."""

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as the trace describes it.

    Attributes:
        name: The driver's name; may be blank.
        sms: Streaming multiprocessors or compute units; 0 if not recorded.
        memory_bytes: Memory size; 0 if not recorded.
        compute_capability: Such as ``"9.0"``; ``None`` if not recorded.
    """

    name: str
    sms: int
    memory_bytes: int
    compute_capability: str | None


@dataclass(frozen=True, slots=True)
class Trace:
    """What one rank recorded; the tables' columns are described in :mod:`tracekit.schema`.

    Attributes:
        source: Where it was read from.
        ops: CPU ops (``schema.OPS``), ordered by start.
        annotations: Named ranges (``schema.ANNOTATIONS``).
        calls: Runtime and driver calls (``schema.CALLS``).
        activities: What ran on the GPU (``schema.ACTIVITIES``).
        device: The GPU that the activities ran on; ``None`` if the trace doesn't describe it.
        rank: Rank in the job; ``None`` outside a distributed one.
        world_size: Ranks of the job.
        warnings: What a reader of any result should know about the recording.
    """

    source: str
    ops: pl.DataFrame
    annotations: pl.DataFrame
    calls: pl.DataFrame
    activities: pl.DataFrame
    device: Device | None
    rank: int | None
    world_size: int
    warnings: tuple[str, ...]

    @property
    def shapes_recorded(self) -> bool:
        """Whether the profiler ran with ``record_shapes=True``."""
        return self.ops["input_dims"].count() > 0

    def __repr__(self) -> str:
        gpu = self.device.name if self.device else "unknown GPU"
        return f"Trace({self.source!r}, {gpu}, {self.ops.height} ops, {self.activities.height} GPU activities)"
