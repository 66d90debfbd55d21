"""Waits for others: for ranks that arrive late at collectives, and for work that the trace doesn't hold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.graph.edit import compute_edge_destinations
from tracekit.graph.ranks import Collectives
from tracekit.program import Program

STRAGGLER_COLUMNS = {
    "rank": pl.Int64,
    "busy_us": pl.Float64,
    "wait_us": pl.Float64,
    "last_share": pl.Float64,
    "held_up_us": pl.Float64,
    "clock_ahead_us": pl.Float64,
}


def find_stragglers(program: Program) -> pl.DataFrame:
    """Tabulate the measured ranks in a mean step; empty for one rank.

    Returns:
        ``rank``; ``busy_us``, summed time of its kernels without waiting; ``wait_us``, waiting for other ranks in
        collectives; ``last_share``, fraction of its collectives at which it arrived last; ``held_up_us``, by how much
        it was then later than all others, summed: the most that the job could save if only this rank arrived earlier;
        ``clock_ahead_us``, how far its clock was ahead of the first rank's (null if no collective shows it).
    """
    if program.collectives is None:
        return pl.DataFrame(schema=STRAGGLER_COLUMNS)
    steps = program.chosen_steps.group_by("rank").agg(steps=pl.len())
    work = program.kernels.filter(program.is_in_chosen_steps).group_by("rank").agg(busy_us=pl.col("dur_ns").sum() / 1e3)
    ahead = program.collectives.clock_offset_ns
    clocks = {"rank": list(ahead), "clock_ahead_us": [ns / 1e3 for ns in ahead.values()]}
    per_rank = (
        steps.join(work, on="rank", how="left")
        .join(_summarize_arrivals(program), on="rank", how="left")
        .join(pl.DataFrame(clocks, schema_overrides={"rank": pl.Int64, "clock_ahead_us": pl.Float64}), "rank", "left")
        .with_columns(pl.col("busy_us", "wait_us", "held_up_us").fill_null(0.0) / pl.col("steps"))
    )
    return per_rank.select(list(STRAGGLER_COLUMNS)).with_columns(pl.col("last_share").fill_null(0.0)).sort("rank")


def _summarize_arrivals(program: Program) -> pl.DataFrame:
    """Summarize each rank's collectives in the chosen steps: ``wait_us``, ``last_share``, ``held_up_us``."""
    assert program.collectives is not None
    table = program.collectives.table.filter(program.is_in_chosen_steps.gather(program.collectives.table["row"]))
    arrival = pl.col("arrival_ns")
    second = arrival.top_k(2).min().over("collective")
    is_last = arrival == arrival.max().over("collective")
    return (
        table.with_columns(last=is_last, later=pl.when(is_last).then(arrival - second).otherwise(0))
        .group_by("rank")
        .agg(pl.col("wait_us").sum(), last_share=pl.col("last").mean(), held_up_us=pl.col("later").sum() / 1e3)
    )


def find_arrival_skews(collectives: Collectives) -> pl.DataFrame:
    """Tabulate how long after the first rank the last one arrived at a collective.

    Returns:
        ``kernel``, a row of the kernel table, and ``skew_ns``; nothing of kernels at which no read ranks meet.
    """
    arrival = pl.col("arrival_ns")
    skew = (arrival.max() - arrival.min()).over("collective")
    return collectives.table.select(kernel=pl.col("row").cast(pl.Int64), skew_ns=skew)


@dataclass(frozen=True, slots=True)
class UnrecordedTime:
    """Waits for work that isn't recorded, in the mean chosen step of the mean rank.

    Attributes:
        count: Number of all waits in the chosen steps.
        time_ns: How long they went on after all recorded work had ended.
        steps: Number of chosen steps, of all ranks.
    """

    count: int
    time_ns: int
    steps: int

    @property
    def waits(self) -> float:
        """Number of waits in a step."""
        return self.count / self.steps

    @property
    def time_us(self) -> float:
        """How long they go on in a step."""
        return self.time_ns / 1e3 / self.steps


def join_unrecorded_time(ranks: Sequence[UnrecordedTime | None], steps: int) -> UnrecordedTime | None:
    """Join what some ranks waited; None without any.

    ``steps`` is the number of chosen steps, of all ranks.
    """
    found = [one for one in ranks if one is not None]
    if not found:
        return None
    return UnrecordedTime(sum(one.count for one in found), sum(one.time_ns for one in found), steps)


def measure_unrecorded_time(program: Program) -> UnrecordedTime | None:
    """Measure the waits of the chosen steps for work that isn't recorded; ``None`` without any."""
    graph = program.graph
    if not graph.unrecorded_edges.size:
        return None
    # The work may be behind several streams, and counts once.
    ends, first = np.unique(compute_edge_destinations(graph)[graph.unrecorded_edges], return_index=True)
    lag_ns = graph.lag_ns[graph.unrecorded_edges[first]]
    ended_ns = graph.nodes.get_vertex_times(ends)
    spans = program.step_timer.compute_step_spans(program.measured_timeline)
    chosen = spans.has_duration & program.step_timer.is_chosen
    begin, end = spans.previous_end_ns[chosen], spans.end_ns[chosen]
    within = ((ended_ns[:, None] > begin) & (ended_ns[:, None] <= end)).any(axis=1)
    if not within.any():
        return None
    steps = program.chosen_steps["step"].n_unique() * len(program.ranks)
    return UnrecordedTime(int(within.sum()), int(lag_ns[within].sum()), steps)
