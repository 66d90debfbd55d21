"""The program that is replayed: the kernels of some steps, and what each of them waits for."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from tracekit.arrays import Floats, Ints
from tracekit.errors import WhatIfError
from tracekit.graph import Graph
from tracekit.graph.ranks import Collectives
from tracekit.graph.recorded import LaunchThreads, find_launch_threads
from tracekit.messages import requests as messages
from tracekit.replay.compressed import JobLinks
from tracekit.replay.engine import Timeline, build_measured_timeline, replay
from tracekit.replay.step_time import StepScale, StepTime, StepTimer
from tracekit.trace import RankTrace

MAX_TOTAL_NS = 1e18


@dataclass(frozen=True)
class StepTables:
    """The kernels and the steps of a program. Edits of its graph leave them as they are.

    Attributes:
        kernels: The kernel table (``schema.KERNELS``) with a column ``rank``, rank after rank. A collective's
            ``dur_ns`` is its transfer time. ``wait_ns`` is the time that a collective waited for other ranks before
            its transfer, and that any other kernel waited, after its start, for the previous kernel on its stream.
        steps: All steps of the trace, with a column ``rank``.
        chosen_steps: The steps that are measured: all figures are about these and no others.
        asked_steps: The steps that were asked for. The trace's first step starts with an empty launch queue: it is
            measured only if no other was asked for.
        is_one_of_several: Whether they are those of one rank of several.
    """

    kernels: pl.DataFrame
    steps: pl.DataFrame
    chosen_steps: pl.DataFrame
    asked_steps: pl.DataFrame
    is_one_of_several: bool = False

    @cached_property
    def step_timer(self) -> StepTimer:
        """The timer that measures these steps in a timeline."""
        return StepTimer(self.kernels, self.steps, self.chosen_steps, is_one_of_several=self.is_one_of_several)


@dataclass(frozen=True)
class Program:
    """Kernels and what each waits for: as recorded, or as what-if edits and other layouts change them.

    Attributes:
        tables: The kernels and the steps.
        graph: The dependency graph.
        collectives: The collectives at which the ranks meet; ``None`` for one rank.
        ranks: The traces in which it was recorded, one per rank.
        step_scale: Measured and self-replayed time of each recorded step, which puts replays on the measured scale.
        kernel_factor: Factor of the what-if edits on each kernel's time in every replay.
        edits: The what-if edits, as the user wrote them.
        framework: The serving engine that ran it, and its version if known; ``None`` if the user doesn't say.
        accepted_tokens: Tokens that each sequence gets in a step of speculative decoding; ``None`` if nobody tells.
        links: Where a part of a job meets the others; ``None`` where the graph holds all ranks that were read.
        trains: Whether it has a backward pass; ``None`` where its ops and kernels tell.
        kernel_tables: Tables of its kernels on targets, which its jobs read and add to; ``None`` where each job makes
            its own.
    """

    tables: StepTables
    graph: Graph
    collectives: Collectives | None
    ranks: tuple[RankTrace, ...]
    step_scale: StepScale
    kernel_factor: Floats
    edits: tuple[str, ...] = ()
    framework: tuple[str, str | None] | None = None
    accepted_tokens: float | None = None
    links: JobLinks | None = None
    trains: bool | None = None
    kernel_tables: dict[str, pl.DataFrame] | None = None

    @property
    def kernels(self) -> pl.DataFrame:
        """The kernel table."""
        return self.tables.kernels

    @property
    def steps(self) -> pl.DataFrame:
        """All steps of the trace."""
        return self.tables.steps

    @property
    def chosen_steps(self) -> pl.DataFrame:
        """The steps that are measured."""
        return self.tables.chosen_steps

    @property
    def step_timer(self) -> StepTimer:
        """The timer that measures steps in this program's timelines."""
        return self.tables.step_timer

    @property
    def trace(self) -> RankTrace:
        """The trace of the rank, or of the first of several ranks."""
        return self.ranks[0]

    @property
    def is_captured(self) -> bool:
        """Whether it was captured without a GPU, so that the times of its kernels are predictions."""
        return self.trace.capture_facts is not None

    @property
    def has_predicted_times(self) -> bool:
        """Whether no trace corrected the times of a captured program, so that shapes alone tell them."""
        facts = self.trace.capture_facts
        return facts is not None and not facts.measured_by

    @cached_property
    def is_in_chosen_steps(self) -> pl.Series:
        """Boolean mask of the kernels that belong to a chosen step."""
        return pl.Series("step", np.isin(self.kernels["step"].to_numpy(), self.chosen_steps["step"].to_numpy()))

    @property
    def kernel_us(self) -> Floats:
        """Measured time of each kernel in microseconds, without edits."""
        return (self.kernels["dur_ns"] / 1e3).to_numpy()

    @cached_property
    def measured_timeline(self) -> Timeline:
        """The timeline as it was recorded."""
        return build_measured_timeline(self.graph)

    @cached_property
    def launch_threads(self) -> LaunchThreads:
        """The CPU threads that launch something."""
        return find_launch_threads(self.ranks, self.graph.nodes, self.kernels)

    def replace_tables(self, **tables: pl.DataFrame) -> "Program":
        """Return the program with other tables, by their names in :class:`StepTables`."""
        changed: dict[str, Any] = dict(tables)
        return replace(self, tables=replace(self.tables, **changed))

    def replay_timeline(self, kernel_us: Floats, host_time: float = 1.0) -> Timeline:
        """Replay with other kernel times and another host speed; arguments as for :meth:`replay_step`."""
        return replay(self.graph, self.to_durations_ns(kernel_us), host_time)

    def replay_step(self, kernel_us: Floats, host_time: float = 1.0) -> StepTime:
        """Return the median step with other kernel times and another host speed, as :meth:`compute_median` does.

        Args:
            kernel_us: Time of each kernel in the order of the kernel table, before edits; collectives without waiting
                for other ranks.
            host_time: Factor on the duration of the host's own work; 1.0 for the measured speed.
        """
        return self.compute_median(self.replay_timeline(kernel_us, host_time))

    def replay_step_time_us(self, kernel_us: Floats, host_time: float = 1.0) -> float:
        """Return the step time of :meth:`replay_step` alone, in a fraction of the time."""
        return self.measure_step_us(self.replay_timeline(kernel_us, host_time))

    def measure_step_us(self, timeline: Timeline) -> float:
        """Compute the step time of :meth:`compute_median` alone, in a fraction of the time."""
        return self.step_timer.compute_median_step_us(timeline, self.step_scale)

    def to_durations_ns(self, kernel_us: Floats) -> Ints:
        """Convert kernel times to a replay's durations, with edits; argument as for :meth:`replay_step`."""
        return round_to_ns(kernel_us * self.kernel_factor * 1e3, "kernels")

    def compute_median(self, timeline: Timeline, longer: Floats | float = 1.0) -> StepTime:
        """Compute the median step of a replay, each step scaled to its own measured time.

        Args:
            timeline: A replay of this program.
            longer: As in :meth:`StepTimer.compute_median`.
        """
        return self.step_timer.compute_median(timeline, self.step_scale, longer)

    def tabulate_chosen_steps(self, timeline: Timeline) -> pl.DataFrame:
        """Tabulate the chosen steps that have times: one row per rank and step.

        Args:
            timeline: A timeline of this program.

        Returns:
            The columns of :meth:`tracekit.replay.step_time.StepTimer.tabulate` and ``index``, the row among all steps.
        """
        table = self.step_timer.tabulate(timeline).with_row_index("index").drop_nulls("time_ns")
        return table.join(self.chosen_steps.select("step"), on="step", how="semi", maintain_order="left")


def round_to_ns(times_ns: Floats, subject: str) -> Ints:
    """Round times to whole nanoseconds for a replay; ``subject`` names what takes them in the error message.

    Raises:
        WhatIfError: The sum is longer than 30 years; a larger one would overflow 64 bits.
    """
    if not times_ns.sum() < MAX_TOTAL_NS:
        raise WhatIfError(messages.TIMES_OVERFLOW(subject=subject))
    whole: Ints = np.rint(times_ns).astype(np.int64)
    return whole
