"""Replay a rank between its rendezvous with others: a round that compresses its graph, and one that replays it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.fleet.join import PlacedRank
from tracekit.fleet.rank_files import StoredRank, read_rank
from tracekit.fleet.summary import RankTask, summarize_rank
from tracekit.graph import Graph
from tracekit.graph.build import build_graph_parts
from tracekit.graph.graph import assemble_graph, find_unexplained
from tracekit.replay.compressed import CompressedRank, RankReplay, compress_rank, release_ends
from tracekit.replay.engine import (
    MEASURED_TIMES,
    Timeline,
    UnknownTimes,
    build_measured_timeline,
    compute_lags,
    remove_gpu_work,
    replay,
    scale_unknown_time,
)
from tracekit.replay.step_time import StepTimer
from tracekit.trace import RankTrace
from tracekit.workload import steps as step_table
from tracekit.workload.kernel_table import mark_tf32


@dataclass(frozen=True, slots=True)
class Durations:
    """Kernel times of one replay of a rank.

    Attributes:
        kernel_ns: Time of each kernel, collectives without waiting; ``None`` for the measured ones.
        host_time: Factor on the duration of the host's own work.
        unknown: Factors on the time of which the trace doesn't say what it was.
    """

    kernel_ns: Ints | None = None
    host_time: float = 1.0
    unknown: UnknownTimes = MEASURED_TIMES


@dataclass(frozen=True, slots=True)
class OpenRank:
    """A rank's tables, as its job makes them.

    Attributes:
        place: The rank in its job.
        kernels: Its kernel table, as in :class:`tracekit.program.StepTables`.
        graph: Its graph on the job's clock, without its rendezvous.
    """

    place: PlacedRank
    kernels: pl.DataFrame
    graph: Graph

    def make_timer(self) -> StepTimer:
        """Make what measures its steps."""
        return StepTimer(self.kernels, self.place.steps, self.place.chosen_steps, is_one_of_several=True)

    def compress(self, every: Sequence[Durations]) -> CompressedRank:
        """Compress its graph for some replays: for each the replay itself, and the host alone."""
        ends, replays = self.place.links.end_activity, []
        for one in every:
            graph = scale_unknown_time(self.graph, one.unknown)
            lag = compute_lags(graph, one.kernel_ns, one.host_time)
            alone, host_lag = remove_gpu_work(graph, lag)
            run = lag[graph.run_edge[ends]]
            replays += [RankReplay(lag, graph.release_ns, run), RankReplay(host_lag, alone.release_ns, 0 * run)]
        return compress_rank(self.graph, self.place.links, replays)

    def replay(self, one: Durations, met_ns: Ints, met_alone_ns: Ints) -> Timeline:
        """Replay it.

        Args:
            one: Its kernel times.
            met_ns: When each rendezvous takes place that the rank waits for.
            met_alone_ns: Likewise in a replay of the hosts alone.
        """
        graph, links = scale_unknown_time(self.graph, one.unknown), self.place.links
        run = compute_lags(graph, one.kernel_ns, one.host_time)[graph.run_edge[links.end_activity]]
        line = replay(release_ends(graph, links, met_ns, run), one.kernel_ns, one.host_time)
        return replace(line, host_alone=release_ends(graph, links, met_alone_ns, 0 * run))

    def build_recorded_timeline(self, met_alone_ns: Ints) -> Timeline:
        """Build the timeline as it was recorded."""
        ends = 0 * self.place.rendezvous
        alone = release_ends(self.graph, self.place.links, met_alone_ns, ends)
        return replace(build_measured_timeline(self.graph), host_alone=alone)


def open_rank(place: PlacedRank) -> OpenRank:
    """Read a rank's tables, or make them again where another worker had them, and place them in the job."""
    return _place(_read_tables(place.summary.task), place)


def open_whole_rank(place: PlacedRank, trace: RankTrace) -> OpenRank:
    """Place a rank in the job as :func:`open_rank` does, with all that is known of its graph, on its own clock.

    Args:
        place: The rank.
        trace: Its trace, as :func:`tracekit.fleet.summary.read_trace` returns it.
    """
    task = place.summary.task
    kernels, marks = _read_tables(task).kernels, step_table.list_step_edges(place.summary.steps)
    parts = build_graph_parts(trace, kernels, marks.clear() if task.without_marks else marks, task.without)
    graph = assemble_graph(parts)
    unexplained = find_unexplained(graph.vertex, graph.first, parts.released)
    return _place(StoredRank(kernels, graph, unexplained), replace(place, shift_ns=0))


def _read_tables(task: RankTask) -> StoredRank:
    try:
        return read_rank(task.folder)
    except FileNotFoundError:
        again = summarize_rank(task)
        error = getattr(again, "error", None)
        if error is not None:
            raise error from None
        return read_rank(task.folder)


def _place(rank: StoredRank, place: PlacedRank) -> OpenRank:
    return OpenRank(
        place,
        _place_kernels(rank.kernels, rank.graph, place),
        _place_graph(rank.graph, rank.unexplained, place),
    )


def _place_kernels(kernels: pl.DataFrame, graph: Graph, place: PlacedRank) -> pl.DataFrame:
    """Number the steps as the job does, and split the time of collectives."""
    own = place.summary.steps["step"]
    work, wait = graph.lag_ns[graph.run_edge], (kernels["dur_ns"].to_numpy() - graph.lag_ns[graph.run_edge])
    rows = place.collectives["place"].to_numpy()
    work[rows], wait[rows] = place.collectives["dur_ns"].to_numpy(), place.collectives["wait_ns"].to_numpy()
    step = pl.col("step").replace_strict(own, place.steps["step"], default=None, return_dtype=pl.Int64)
    return mark_tf32(
        kernels.select(
            pl.lit(place.number, pl.Int64).alias("rank"),
            pl.all().exclude("step", "dur_ns"),
            step,
            dur_ns=work,
            wait_ns=wait,
        ),
        place.tf32_names,
    )


def _place_graph(graph: Graph, unexplained: Ints, place: PlacedRank) -> Graph:
    """Move a graph to the job's clock, and set the time of collectives."""
    nodes = replace(
        graph.nodes, start_ns=graph.nodes.start_ns + place.shift_ns, end_ns=graph.nodes.end_ns + place.shift_ns
    )
    release = np.zeros_like(graph.release_ns)
    release[graph.vertex[2 * unexplained]] = nodes.start_ns[unexplained]
    rows = place.collectives["place"].to_numpy()
    lag, kept = graph.lag_ns.copy(), graph.kept_ns.copy()
    lag[graph.run_edge[rows]] = place.collectives["run_ns"].to_numpy()
    kept[rows] = place.collectives["kept_ns"].to_numpy()
    return replace(graph, nodes=nodes, release_ns=release, lag_ns=lag, kept_ns=kept)
