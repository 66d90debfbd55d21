"""Why the GPU, or each of its streams, was idle: every nanosecond in which it did no work, by its cause.

The activity that ends an idle stretch came no earlier because of what the edges that bind say, all the way back to
the beginning of the stretch (:mod:`tracekit.replay.trail`). A collective that waits for other ranks does no work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.replay.causes import Cause, label, long
from tracekit.replay.engine import Timeline
from tracekit.replay.gaps import KEYS, NO_KERNEL, Gaps, find, of_streams, windows
from tracekit.replay.measure import works_from_ns
from tracekit.replay.run import Run
from tracekit.replay.trail import Stretches, follow

END_OF_STEP = "end of the step"
"""Stands for an op where no kernel ended an idle stretch."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle time of the GPU, of each rank's, or of each stream in the chosen steps; the pieces add up to it exactly.

    Of streams, both tables have ``rank`` (if there are several), ``device`` and ``stream`` as well.

    Attributes:
        pieces: ``step``, ``cause``, ``kernel`` (row of the kernel table that the idle stretch ended with; null: the
            step ended instead), ``time_ns``.
        steps: ``step``, ``time_ns``, ``busy_ns`` (anything worked, whichever step launched it), ``idle_ns``.
    """

    pieces: pl.DataFrame
    steps: pl.DataFrame

    def by_cause(self) -> pl.DataFrame:
        """Per cause, longest first: ``cause``, ``time_us`` in a mean step, ``share`` of the idle time."""
        return self._shares(self.pieces, "cause")

    def by_op(self, kernels: pl.DataFrame, *causes: Cause, column: str = "op") -> pl.DataFrame:
        """Per op whose launch came late, longest first: ``op``, ``time_us`` in a mean step, ``share``.

        Args:
            kernels: The kernel table.
            causes: Which causes to count; launch-bound and sync-bound by default.
            column: ``op``, or what else the kernel table tells of who launched: ``module``, ``python_line``.
        """
        wanted = causes or (Cause.LAUNCH_BOUND, Cause.SYNC_BOUND)
        launched = pl.coalesce("op", "name") if column == "op" else pl.col(column)
        rows = kernels.select(kernel=pl.int_range(pl.len(), dtype=pl.Int64), told=launched)
        pieces = self.pieces.filter(pl.col("cause").is_in(wanted)).join(rows, on="kernel", how="left")
        ended = pl.when(pl.col("kernel").is_null()).then(pl.lit(END_OF_STEP)).otherwise("told")
        return self._shares(pieces.with_columns(ended.alias(column)), column)

    def by_stream(self) -> pl.DataFrame:
        """Per stream and cause: ``rank``, ``device``, ``stream``, ``busy_us``, ``idle_us``, ``cause``, ``time_us``.

        Times are those of a mean step; ``cause`` is null for a stream that was never idle.
        """
        keys = [key for key in KEYS if key in self.steps.columns]
        steps = max(self.steps["step"].n_unique(), 1)
        whole = self.steps.group_by(keys, maintain_order=True).agg(pl.col("busy_ns", "idle_ns").sum())
        causes = self.pieces.group_by(*keys, "cause").agg(pl.col("time_ns").sum())
        joined = whole.join(causes, on=keys, how="left", nulls_equal=True)
        return joined.sort(*keys, "time_ns", "cause", descending=[*[False] * len(keys), True, False]).select(
            *keys,
            busy_us=pl.col("busy_ns") / 1e3 / steps,
            idle_us=pl.col("idle_ns") / 1e3 / steps,
            cause="cause",
            time_us=pl.col("time_ns") / 1e3 / steps,
        )

    def _shares(self, pieces: pl.DataFrame, key: str) -> pl.DataFrame:
        idle_ns = max(self.steps["idle_ns"].sum(), 1)
        summed = pieces.group_by(key).agg(pl.col("time_ns").sum()).sort("time_ns", key, descending=[True, False])
        return summed.select(
            key, time_us=pl.col("time_ns") / 1e3 / max(self.steps.height, 1), share=pl.col("time_ns") / idle_ns
        )


def attribute(run: Run, timeline: Timeline, *, streams: bool = False) -> Idle:
    """Attribute the GPU's idle time in the chosen steps.

    Args:
        run: The run.
        timeline: Of its graph, measured or replayed.
        streams: Of each stream by itself, instead of each GPU.
    """
    kernels, within = run.kernels, windows(run, timeline)
    if streams:
        within = of_streams(within, kernels)
    empty = find(timeline.activity_start_ns, timeline.activity_end_ns, kernels, within)
    without_work = find(works_from_ns(timeline, kernels), timeline.activity_end_ns, kernels, within)
    ended = empty.where(empty.kernel != NO_KERNEL) if streams else empty
    stretches = _stretches(run.graph, timeline, within, ended)
    trail = follow(run.graph, timeline, stretches)
    place = {"window": ended.window[trail.stretch], "kernel": ended.kernel[trail.stretch]}
    causes = label(run, timeline, stretches, trail).with_columns(**place)
    parts = [long(causes), _rendezvous(without_work, empty)]
    if streams:
        parts.append(_left_alone(empty.where(empty.kernel == NO_KERNEL)))
    keys = [key for key in KEYS if streams and key in within.columns]
    return Idle(_of_windows(pl.concat(parts), within, keys), _summed(without_work, within, keys))


def _of_windows(pieces: pl.DataFrame, within: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The pieces as :class:`Idle` holds them."""
    return pieces.select(
        **{key: within[key].gather(pieces["window"]) for key in (*keys, "step")},
        cause="cause",
        kernel=pl.col("kernel").replace(NO_KERNEL, None),
        time_ns="time_ns",
    )


def _summed(without_work: Gaps, within: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The windows as :attr:`Idle.steps`."""
    idle_ns = np.zeros(within.height, dtype=np.int64)
    np.add.at(idle_ns, without_work.window, without_work.dur_ns)
    time_ns = pl.col("end_ns") - pl.col("begin_ns")
    return within.select(*keys, "step", time_ns=time_ns, busy_ns=time_ns - pl.Series(idle_ns), idle_ns=idle_ns)


def _rendezvous(without_work: Gaps, empty: Gaps) -> pl.DataFrame:
    """What of each stretch without work isn't empty either: collectives ran then, and waited."""
    outer, inner = (
        pl.DataFrame({"window": gaps.window, "begin_ns": gaps.begin_ns, "kernel": gaps.kernel, "dur_ns": gaps.dur_ns})
        for gaps in (without_work, empty)
    )
    stretches = outer.with_row_index("stretch").sort("begin_ns")
    lies_in = inner.sort("begin_ns").join_asof(
        stretches.select("window", "begin_ns", "stretch"), on="begin_ns", by="window", check_sortedness=False
    )
    empty_ns = lies_in.group_by("stretch").agg(empty_ns=pl.col("dur_ns").sum())
    return (
        stretches.join(empty_ns, on="stretch", how="left")
        .select(
            "window",
            "kernel",
            cause=pl.lit(str(Cause.RENDEZVOUS)),
            time_ns=pl.col("dur_ns") - pl.col("empty_ns").fill_null(0),
        )
        .filter(pl.col("time_ns") > 0)
    )


def _left_alone(gaps: Gaps) -> pl.DataFrame:
    """Stretches that no activity ended."""
    table = pl.DataFrame({"window": gaps.window, "kernel": gaps.kernel, "time_ns": gaps.dur_ns})
    return table.select("window", "kernel", cause=pl.lit(str(Cause.NOTHING_LAUNCHED)), time_ns="time_ns")


def _stretches(graph: Graph, timeline: Timeline, within: pl.DataFrame, empty: Gaps) -> Stretches:
    """The gaps, with the moment that ended each: the start of the next activity, or the end of the step."""
    mark = _end_mark(timeline, within)[empty.window]
    node = np.where(empty.kernel == NO_KERNEL, mark, timeline.cpu + empty.kernel)
    return Stretches(empty.begin_ns, empty.end_ns, graph.vertex[2 * node])


def _end_mark(timeline: Timeline, windows: pl.DataFrame) -> Ints:
    """The mark at each step's end on the CPU; any node where there are none, as steps then end with the GPU's work."""
    if not timeline.marks:
        return np.zeros(windows.height, dtype=np.int64)
    return timeline.end_marks(windows["index"].cast(pl.Int64).to_numpy())
