"""Attribute the idle time of a GPU, or of each of its streams, to causes.

An activity ends each idle gap. The binding edges of its start, followed back to the beginning of the gap, explain the
gap (:mod:`tracekit.analysis.binding_edges`). A collective that waits for other ranks counts as idle.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.binding_edges import TimeRanges, follow_binding_edges
from tracekit.analysis.gaps import NO_KERNEL, STREAM_KEYS, Gaps, find_gaps, find_step_windows, split_by_stream
from tracekit.analysis.idle_causes import IdleCause, classify_idle_segments, to_long_table
from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.replay.engine import Timeline
from tracekit.replay.step_time import compute_work_start_ns
from tracekit.run import MeasuredRun

END_OF_STEP = "end of the step"
"""Placeholder op of idle gaps that no kernel ended."""


@dataclass(frozen=True, slots=True)
class IdleBreakdown:
    """Idle time of the GPU, of each rank's GPU, or of each stream in the chosen steps; the exact sum of the segments.

    For streams, both tables also have ``rank`` (with several ranks), ``device`` and ``stream``.

    Attributes:
        segments: ``step``, ``cause``, ``kernel`` (row of the kernel that ended the gap; null if the step ended first),
            ``time_ns``.
        steps: ``step``, ``time_ns``, ``busy_ns`` (any activity worked, of any step), ``idle_ns``.
    """

    segments: pl.DataFrame
    steps: pl.DataFrame

    def sum_by_cause(self) -> pl.DataFrame:
        """Sum by cause, longest first: ``cause``, ``time_us`` in a mean step, ``share`` (fraction of the idle time)."""
        return self._sum_with_fractions(self.segments.lazy(), "cause")

    def sum_by_op(self, kernels: pl.DataFrame, *causes: IdleCause, column: str = "op") -> pl.DataFrame:
        """Sum by op that launched late, longest first: ``op``, ``time_us`` in a mean step, ``share``.

        Args:
            kernels: The kernel table.
            causes: The causes to count; launch-bound and sync-bound by default.
            column: ``op``, or another column of the kernel table: ``module``, ``python_line``.
        """
        wanted = causes or (IdleCause.LAUNCH_BOUND, IdleCause.SYNC_BOUND)
        pieces = self.segments.filter(pl.col("cause").is_in(wanted))
        sources = ("op", "name") if column == "op" else (column,)
        launched = pl.DataFrame([kernels[name].gather(pieces["kernel"]) for name in sources])
        ended = pl.when(pl.col("kernel").is_null()).then(pl.lit(END_OF_STEP)).otherwise(pl.coalesce(sources))
        told = pieces.select("time_ns", "kernel").hstack(launched).lazy().select("time_ns", ended.alias(column))
        return self._sum_with_fractions(told, column)

    def find_longest(self, kernels: pl.DataFrame, column: str) -> dict[str, str]:
        """Find, for each cause, the op or other column of the kernels that ended most of its idle time.

        Args:
            kernels: The kernel table.
            column: As for :meth:`sum_by_op`.

        Returns:
            By cause, without causes that the step's end ended most of.
        """
        launched = pl.coalesce("op", "name") if column == "op" else pl.col(column)
        rows = kernels.select(kernel=pl.int_range(pl.len(), dtype=pl.Int64), ended=launched)
        ended = pl.when(pl.col("kernel").is_null()).then(pl.lit(END_OF_STEP)).otherwise("ended")
        summed = (
            self.segments.join(rows, on="kernel", how="left")
            .group_by("cause", ended=ended)
            .agg(pl.col("time_ns").sum())
            .sort("time_ns", "ended", descending=[True, False])
        )
        longest = summed.group_by("cause", maintain_order=True).first().select("cause", "ended")
        return {cause: name for cause, name in longest.iter_rows() if name not in (None, END_OF_STEP)}

    def sum_by_stream(self) -> pl.DataFrame:
        """Sum by stream and cause: ``rank``, ``device``, ``stream``, ``busy_us``, ``idle_us``, ``cause``, ``time_us``.

        Times are those of a mean step; ``cause`` is null for a stream that was never idle.
        """
        keys = list(STREAM_KEYS)
        steps = max(self.steps["step"].n_unique(), 1)
        whole = self.steps.group_by(keys, maintain_order=True).agg(pl.col("busy_ns", "idle_ns").sum())
        causes = self.segments.group_by(*keys, "cause").agg(pl.col("time_ns").sum())
        joined = whole.join(causes, on=keys, how="left", nulls_equal=True)
        return joined.sort(*keys, "time_ns", "cause", descending=[*[False] * len(keys), True, False]).select(
            *keys,
            busy_us=pl.col("busy_ns") / 1e3 / steps,
            idle_us=pl.col("idle_ns") / 1e3 / steps,
            cause="cause",
            time_us=pl.col("time_ns") / 1e3 / steps,
        )

    def _sum_with_fractions(self, pieces: pl.LazyFrame, key: str) -> pl.DataFrame:
        idle_ns = max(self.steps["idle_ns"].sum(), 1)
        summed = pieces.group_by(key).agg(pl.col("time_ns").sum()).sort("time_ns", key, descending=[True, False])
        return summed.select(
            key, time_us=pl.col("time_ns") / 1e3 / max(self.steps.height, 1), share=pl.col("time_ns") / idle_ns
        ).collect()


def attribute_idle_time(run: MeasuredRun, timeline: Timeline, *, streams: bool = False) -> IdleBreakdown:
    """Attribute the GPU's idle time in the chosen steps to causes.

    Args:
        run: The run.
        timeline: A timeline of the run's graph, measured or replayed.
        streams: Whether to treat each stream separately instead of each GPU.
    """
    kernels, within = run.kernels, find_step_windows(run, timeline)
    if streams:
        within = split_by_stream(within, kernels)
    empty = find_gaps(timeline.activity_start_ns, timeline.activity_end_ns, kernels, within)
    without_work = find_gaps(compute_work_start_ns(timeline, kernels), timeline.activity_end_ns, kernels, within)
    ended = empty.select(empty.kernel != NO_KERNEL) if streams else empty
    stretches = _make_time_ranges(run.graph, timeline, within, ended)
    trail = follow_binding_edges(run.graph, timeline, stretches)
    place = {"window": ended.window[trail.range_index], "kernel": ended.kernel[trail.range_index]}
    causes = classify_idle_segments(run, timeline, stretches, trail).with_columns(**place)
    parts = [to_long_table(causes), _find_rendezvous_waits(without_work, empty)]
    if streams:
        parts.append(_label_trailing_gaps(empty.select(empty.kernel == NO_KERNEL)))
    keys = STREAM_KEYS if streams else ()
    return IdleBreakdown(
        _add_window_keys(pl.concat(parts), within, keys), _sum_busy_and_idle(without_work, within, keys)
    )


def _add_window_keys(pieces: pl.DataFrame, within: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Add the keys of their windows to the segments, as in :class:`IdleBreakdown`."""
    return pieces.select(
        **{key: within[key].gather(pieces["window"]) for key in (*keys, "step")},
        cause="cause",
        kernel=pl.col("kernel").replace(NO_KERNEL, None),
        time_ns="time_ns",
    )


def _sum_busy_and_idle(without_work: Gaps, within: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sum busy and idle time of each window, as in :attr:`IdleBreakdown.steps`."""
    idle_ns = np.zeros(within.height, dtype=np.int64)
    np.add.at(idle_ns, without_work.window, without_work.dur_ns)
    time_ns = pl.col("end_ns") - pl.col("begin_ns")
    return within.select(*keys, "step", time_ns=time_ns, busy_ns=time_ns - pl.Series(idle_ns), idle_ns=idle_ns)


def _find_rendezvous_waits(without_work: Gaps, empty: Gaps) -> pl.DataFrame:
    """Find the time in which collectives ran but only waited: gaps without work, minus gaps without any activity."""
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
            cause=pl.lit(str(IdleCause.RENDEZVOUS)),
            time_ns=pl.col("dur_ns") - pl.col("empty_ns").fill_null(0),
        )
        .filter(pl.col("time_ns") > 0)
    )


def _label_trailing_gaps(gaps: Gaps) -> pl.DataFrame:
    """Label the gaps at the end of a window that no activity ended."""
    table = pl.DataFrame({"window": gaps.window, "kernel": gaps.kernel, "time_ns": gaps.dur_ns})
    return table.select("window", "kernel", cause=pl.lit(str(IdleCause.NOTHING_LAUNCHED)), time_ns="time_ns")


def _make_time_ranges(graph: Graph, timeline: Timeline, within: pl.DataFrame, empty: Gaps) -> TimeRanges:
    """Convert gaps to time ranges with the vertex that ends each: the next activity's start, or the step's end."""
    mark = _find_end_marks(timeline, within)[empty.window]
    node = np.where(empty.kernel == NO_KERNEL, mark, timeline.host_node_count + empty.kernel)
    return TimeRanges(empty.begin_ns, empty.end_ns, graph.vertex[2 * node])


def _find_end_marks(timeline: Timeline, windows: pl.DataFrame) -> Ints:
    """Return the end mark of each step on the CPU; 0 without marks, where steps end with the GPU's work."""
    if not timeline.mark_count:
        return np.zeros(windows.height, dtype=np.int64)
    return timeline.find_end_marks(windows["index"].cast(pl.Int64).to_numpy())
