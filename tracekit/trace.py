"""A trace: the facts that the profiler recorded, as typed tables, one set per rank."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Self, TypeGuard

import numpy as np
import polars as pl

from tracekit.arrays import NO_NUMBER, DistinctNames, Ints, fill_nulls, list_distinct, make_column, select_any
from tracekit.errors import TraceError
from tracekit.format import abbreviate_names, format_quantity
from tracekit.messages import Message
from tracekit.messages import traces as messages
from tracekit.models.captured import CaptureFacts
from tracekit.models.llm import ModelConfig
from tracekit.models.lookups import IndexPattern

if TYPE_CHECKING:
    import pandas as pd
    from hta.trace_analysis import TraceAnalysis

PEAK_MEMORY_KEY = "peak_memory"
"""Metadata key of the peak memory computed from a trace's [memory] events."""

SYNTHETIC_KEY = "synthetic"
"""Metadata key of traces whose times nobody measured; it says who made them."""

NOTES_KEY = "tracekit"
"""Metadata key of what tracekit notes: facts of a recording, or which version wrote a prediction."""

TABLE_NAMES = ("ops", "annotations", "calls", "activities", "syncs", "overheads", "frames")
NAMED_TABLES = ("ops", "annotations", "calls", "activities")


@dataclass(frozen=True, slots=True)
class TraceDevice:
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
class CapturedGraphs:
    """The captures of CUDA graphs: the ops and calls that put the kernels into the graphs.

    Attributes:
        ops: CPU ops of the captures (``schema.OPS``).
        calls: Calls that put kernels into the graphs (``schema.CALLS``).
        call_row: Row in ``calls`` of each of the trace's activities; null without a matching capture.
    """

    ops: pl.DataFrame
    calls: pl.DataFrame
    call_row: pl.Series


@dataclass(frozen=True, slots=True)
class Launches:
    """The call that launched each activity, joined by correlation id.

    Flow events are not used: libkineto also draws them for calls that launch nothing.

    Attributes:
        row: Row in ``calls`` of each activity; -1 if its call isn't in the trace.
        call: The same as a column, with null instead.
    """

    row: Ints
    call: pl.Series

    @classmethod
    def from_tables(cls, activities: pl.DataFrame, calls: pl.DataFrame) -> Self:
        """Join activities to the first call of their correlation id."""
        row = np.full(activities.height, -1)
        if calls.height:
            ids, wanted = (fill_nulls(table["correlation"], NO_NUMBER) for table in (calls, activities))
            order = np.argsort(ids, kind="stable")
            first = order[np.searchsorted(ids, wanted, sorter=order).clip(max=ids.size - 1)]
            row = np.where((ids[first] == wanted) & (wanted != NO_NUMBER), first, -1)
        return cls(row, make_column("call", row, -1))


@dataclass(frozen=True)
class RankTrace:
    """The trace of one rank; the tables' columns are described in :mod:`tracekit.schema`.

    Attributes:
        source: Where it was read from.
        ops: CPU ops (``schema.OPS``), ordered by start.
        annotations: Named ranges (``schema.ANNOTATIONS``).
        calls: Runtime and driver calls (``schema.CALLS``).
        activities: GPU activities (``schema.ACTIVITIES``).
        syncs: Recorded waits (``schema.SYNCS``).
        overheads: Overhead of the profiler and the driver (``schema.OVERHEADS``).
        frames: Calls of Python functions (``schema.FRAMES``); none unless requested.
        device: The GPU of the activities; ``None`` if the trace does not describe it.
        rank: Rank in the job; ``None`` outside a distributed one.
        world_size: Number of ranks of the job.
        metadata: Other facts about the recording: profiler options, versions, names.
        warnings: Warnings about the recording, for readers of any result.
        ledger: What became of the file's events (``schema.LEDGER``).
        thread_names: Recorded names of CPU threads (``schema.THREAD_NAMES``).
        captured: Captures of the CUDA graphs; ``None`` if none was recorded.
        model: Sizes of the model that it ran, from a ``config.json``; ``None`` if none was given.
        indices: How rows of embedding tables are looked up; ``None`` if nobody knows.
    """

    source: str
    ops: pl.DataFrame
    annotations: pl.DataFrame
    calls: pl.DataFrame
    activities: pl.DataFrame
    syncs: pl.DataFrame
    overheads: pl.DataFrame
    frames: pl.DataFrame
    device: TraceDevice | None
    rank: int | None
    world_size: int
    metadata: Mapping[str, object]
    warnings: tuple[Message, ...]
    ledger: pl.DataFrame
    thread_names: pl.DataFrame
    captured: CapturedGraphs | None = None
    model: ModelConfig | None = None
    indices: IndexPattern | None = None

    @cached_property
    def launches(self) -> Launches:
        """What launched each activity."""
        return Launches.from_tables(self.activities, self.calls)

    @cached_property
    def call_names(self) -> DistinctNames:
        """The names of the calls."""
        return DistinctNames.from_column(self.calls["name"])

    @property
    def has_shapes(self) -> bool:
        """Whether the profiler ran with ``record_shapes=True``."""
        return self.ops["input_dims"].count() > 0

    @property
    def has_stacks(self) -> bool:
        """Whether Python calls, or the stacks of ops, were recorded and requested."""
        noted = ((self.ops[name] != "").any() for name in ("call_stack", "module_hierarchy"))
        return not self.frames.is_empty() or any(noted)

    @property
    def is_synthetic(self) -> bool:
        """Whether a program made up its times, as it says itself."""
        return SYNTHETIC_KEY in self.metadata

    @property
    def is_exported(self) -> bool:
        """Whether it is a prediction that tracekit wrote, of the steps that were measured."""
        return isinstance(self.metadata.get(NOTES_KEY), str)

    @cached_property
    def capture_facts(self) -> CaptureFacts | None:
        """Facts about the program that it was captured from without a GPU; None if it was recorded."""
        return CaptureFacts.from_metadata(self.metadata)

    @property
    def recorded_facts(self) -> Mapping[str, object]:
        """Facts that ``tracekit.record`` noted about machine, settings and steps; empty for other traces."""
        noted = self.metadata.get(NOTES_KEY)
        return noted if isinstance(noted, Mapping) else {}

    @property
    def unprofiled_step_us(self) -> float | None:
        """Median step time without the profiler, if ``tracekit.record`` measured it; else ``None``."""
        times = self.recorded_facts.get("unprofiled_step_us")
        numbers = [float(time) for time in times if _is_positive_number(time)] if isinstance(times, list) else []
        return median(numbers) if numbers else None

    @property
    def peak_memory_bytes(self) -> tuple[float, float] | None:
        """Peak GPU memory of tensors, and peak memory reserved by PyTorch's allocator, if recorded."""
        for allocated, reserved in self._list_memory_peaks():
            if _is_positive_number(allocated) and _is_positive_number(reserved) and reserved >= allocated:
                return float(allocated), float(reserved)
        return None

    @property
    def peak_allocated_bytes(self) -> float | None:
        """Peak GPU memory of tensors, if recorded; known without the memory that the allocator reserved."""
        known = [float(allocated) for allocated, _ in self._list_memory_peaks() if _is_positive_number(allocated)]
        return known[0] if known else None

    def _list_memory_peaks(self) -> list[tuple[object, object]]:
        noted = (self.recorded_facts.get("memory"), self.metadata.get(PEAK_MEMORY_KEY))
        peaks = [memory for memory in noted if isinstance(memory, Mapping)]
        return [(memory.get("peak_allocated_bytes"), memory.get("peak_reserved_bytes")) for memory in peaks]

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """The distinct names in each table of ops, annotations, calls and activities."""
        return {table: list_distinct(self.tables[table]["name"]) for table in NAMED_TABLES}

    def find_named(self, table: str, pattern: str) -> Ints:
        """Return the rows of a table of :attr:`names` whose name a regular expression finds."""
        return select_any(self.tables[table]["name"], [name for name in self.names[table] if re.search(pattern, name)])

    def has_named(self, table: str, pattern: str) -> bool:
        """Return whether a regular expression finds any name of a table of :attr:`names`."""
        return any(re.search(pattern, name) for name in self.names[table])

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by name."""
        return {name: getattr(self, name) for name in TABLE_NAMES}

    @property
    def tables_bytes(self) -> int:
        """Memory of the tables."""
        return int(sum(table.estimated_size() for table in self.tables.values()))


def _is_positive_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and value > 0


@dataclass(frozen=True, slots=True)
class Trace:
    """The profiler traces of a job.

    Attributes:
        ranks: Trace of each rank, by rank; at least one.
        warnings: Warnings about the set of ranks; each rank has its own in addition.
        recording: What a CPU recorded, where the trace is of the program that this shows; None for any other.
    """

    ranks: tuple[RankTrace, ...]
    warnings: tuple[Message, ...] = ()
    recording: RankTrace | None = None

    @property
    def source(self) -> str:
        """Where it was read from."""
        return abbreviate_names(self.ranks[0].source, len({rank.source for rank in self.ranks}) - 1)

    def rank(self, number: int | None = None) -> RankTrace:
        """Return the trace of one rank; by default of the first one.

        Raises:
            TraceError: This rank was not read.
        """
        if number is None:
            return self.ranks[0]
        for rank in self.ranks:
            if rank.rank == number:
                return rank
        known = [rank.rank for rank in self.ranks if rank.rank is not None]
        if known:
            raise TraceError(messages.RANK_NOT_READ(rank=number, path=self.source, read=known))
        raise TraceError(messages.RANK_NOT_RECORDED(rank=number, path=self.source))

    def to_polars(self) -> dict[str, pl.DataFrame]:
        """Return the tables by name (``schema.OPS`` and so on), of all ranks, with ``rank`` as the first column."""
        return {
            name: pl.concat(
                rank.tables[name].select(pl.lit(rank.rank, pl.Int64).alias("rank"), pl.all()) for rank in self.ranks
            )
            for name in self.ranks[0].tables
        }

    def to_pandas(self) -> "dict[str, pd.DataFrame]":
        """Return the tables of :meth:`to_polars` as pandas frames.

        Raises:
            TracekitError: pandas is not installed.
        """
        from tracekit.interop.pandas import to_pandas

        return to_pandas(self)

    def to_hta(self, *, include_last_profiler_step: bool = False) -> "TraceAnalysis":
        """Convert the trace for HolisticTraceAnalysis, whose analyses then run without its loader.

        Args:
            include_last_profiler_step: HTA's own argument: by default HTA omits the last of several steps.

        Raises:
            TracekitError: HolisticTraceAnalysis is not installed (``pip install 'tracekit-gpu[hta]'``).
        """
        from tracekit.interop.hta import to_hta

        return to_hta(self, include_last_profiler_step=include_last_profiler_step)

    def __repr__(self) -> str:
        device = self.ranks[0].device
        ops, activities = (sum(len(rank.tables[name]) for rank in self.ranks) for name in ("ops", "activities"))
        gpu = device.name if device else "unknown GPU"
        return (
            f"Trace({self.source!r}, {gpu}, {format_quantity(len(self.ranks), 'rank')}, {ops} ops, "
            f"{activities} GPU activities)"
        )
