"""A trace: the facts that the profiler recorded, as typed tables, one set per rank."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeGuard

import polars as pl

from tracekit.errors import TraceError
from tracekit.units import many, with_others

if TYPE_CHECKING:
    import pandas as pd
    from hta.trace_analysis import TraceAnalysis

PEAK_MEMORY = "peak_memory"
"""Key of the metadata that holds what the [memory] events of a trace come to."""

TABLES = ("ops", "annotations", "calls", "activities", "syncs", "overheads", "frames")


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
class Captured:
    """What launched the kernels of CUDA graphs when the graphs were captured.

    Attributes:
        ops: CPU ops of the captures (``schema.OPS``).
        calls: Calls that put kernels into the graphs (``schema.CALLS``).
        launched_by: For each of the trace's activities the row in ``calls``; null where no capture tells.
    """

    ops: pl.DataFrame
    calls: pl.DataFrame
    launched_by: pl.Series


@dataclass(frozen=True, slots=True)
class RankTrace:
    """What one rank recorded; the tables' columns are described in :mod:`tracekit.schema`.

    Attributes:
        source: Where it was read from.
        ops: CPU ops (``schema.OPS``), ordered by start.
        annotations: Named ranges (``schema.ANNOTATIONS``).
        calls: Runtime and driver calls (``schema.CALLS``).
        activities: What ran on the GPU (``schema.ACTIVITIES``).
        syncs: Recorded waits (``schema.SYNCS``).
        overheads: What the profiler and the driver cost (``schema.OVERHEADS``).
        frames: Calls of Python functions (``schema.FRAMES``); none unless they were asked for.
        device: The GPU that the activities ran on; ``None`` if the trace doesn't describe it.
        rank: Rank in the job; ``None`` outside a distributed one.
        world_size: Ranks of the job.
        metadata: What else the file says about the recording: profiler options, versions, names.
        warnings: What a reader of any result should know about the recording.
        captured: Where the kernels of CUDA graphs come from; ``None`` if no capture was recorded.
    """

    source: str
    ops: pl.DataFrame
    annotations: pl.DataFrame
    calls: pl.DataFrame
    activities: pl.DataFrame
    syncs: pl.DataFrame
    overheads: pl.DataFrame
    frames: pl.DataFrame
    device: Device | None
    rank: int | None
    world_size: int
    metadata: Mapping[str, object]
    warnings: tuple[str, ...]
    captured: Captured | None = None

    @property
    def shapes_recorded(self) -> bool:
        """Whether the profiler ran with ``record_shapes=True``."""
        return self.ops["input_dims"].count() > 0

    @property
    def stacks_recorded(self) -> bool:
        """Whether Python's calls, or the stacks that ops note, were recorded and asked for."""
        noted = ((self.ops[name] != "").any() for name in ("call_stack", "module_hierarchy"))
        return not self.frames.is_empty() or any(noted)

    @property
    def recorded_facts(self) -> Mapping[str, object]:
        """What ``tracekit.record`` noted about machine, settings and steps; nothing in other traces."""
        noted = self.metadata.get("tracekit")
        return noted if isinstance(noted, Mapping) else {}

    @property
    def unprofiled_step_us(self) -> float | None:
        """The median step without the profiler, where ``tracekit.record`` timed some; ``None`` elsewhere."""
        times = self.recorded_facts.get("unprofiled_step_us")
        numbers = [float(time) for time in times if _is_amount(time)] if isinstance(times, list) else []
        return median(numbers) if numbers else None

    @property
    def peak_memory_bytes(self) -> tuple[float, float] | None:
        """The most that tensors took of the GPU's memory, and PyTorch's allocator with them, where it was recorded."""
        for noted in (self.recorded_facts.get("memory"), self.metadata.get(PEAK_MEMORY)):
            memory = noted if isinstance(noted, Mapping) else {}
            allocated, reserved = memory.get("peak_allocated_bytes"), memory.get("peak_reserved_bytes")
            if _is_amount(allocated) and _is_amount(reserved):
                return float(allocated), float(reserved)
        return None

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by name."""
        return {name: getattr(self, name) for name in TABLES}

    @property
    def tables_bytes(self) -> int:
        """Memory that the tables take."""
        return int(sum(table.estimated_size() for table in self.tables.values()))


def _is_amount(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and value > 0


@dataclass(frozen=True, slots=True)
class Trace:
    """What the profiler recorded of a job.

    Attributes:
        ranks: What each rank recorded, by rank; at least one.
        warnings: What a reader of any result should know about the set of ranks; each rank has its own besides.
    """

    ranks: tuple[RankTrace, ...]
    warnings: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Where it was read from."""
        return with_others(self.ranks[0].source, len(self.ranks) - 1)

    def rank(self, number: int | None = None) -> RankTrace:
        """What one rank recorded; by default the first one.

        Raises:
            TraceError: This rank is not among those that were read.
        """
        if number is None:
            return self.ranks[0]
        for rank in self.ranks:
            if rank.rank == number:
                return rank
        known = ", ".join(str(rank.rank) for rank in self.ranks if rank.rank is not None)
        hint = f"Read: {known}." if known else "It doesn't say which rank it is of."
        raise TraceError(f"rank {number} was not read from {self.source}.", hint)

    def to_polars(self) -> dict[str, pl.DataFrame]:
        """The tables by name (``schema.OPS`` and so on), of all ranks, with a column ``rank`` in front."""
        return {
            name: pl.concat(
                rank.tables[name].select(pl.lit(rank.rank, pl.Int64).alias("rank"), pl.all()) for rank in self.ranks
            )
            for name in self.ranks[0].tables
        }

    def to_pandas(self) -> "dict[str, pd.DataFrame]":
        """The tables as :meth:`to_polars` gives them, as pandas frames.

        Raises:
            TracekitError: pandas isn't installed.
        """
        from tracekit.interop.pandas import to_pandas

        return to_pandas(self)

    def to_hta(self, *, include_last_profiler_step: bool = False) -> "TraceAnalysis":
        """The trace for HolisticTraceAnalysis: its analyses run on it without its loader.

        Args:
            include_last_profiler_step: As HTA's own argument: of several steps it leaves out the last one by default.

        Raises:
            TracekitError: HolisticTraceAnalysis isn't installed (``pip install '.[hta]'`` in tracekit's checkout).
        """
        from tracekit.interop.hta import to_hta

        return to_hta(self, include_last_profiler_step=include_last_profiler_step)

    def __repr__(self) -> str:
        device = self.ranks[0].device
        ops, activities = (sum(len(rank.tables[name]) for rank in self.ranks) for name in ("ops", "activities"))
        gpu = device.name if device else "unknown GPU"
        return f"Trace({self.source!r}, {gpu}, {many(len(self.ranks), 'rank')}, {ops} ops, {activities} GPU activities)"
