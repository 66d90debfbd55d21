"""Replay the dependency graph: one forward pass gives every vertex its earliest possible time.

A vertex is the start or the end of a node. Its time is the latest of ``time[src] + lag`` over its incoming edges, and
no earlier than its release time. Example, two kernels on one stream that are launched by two calls::

    call 1 ends at 2 --launch, lag 5--> kernel A starts at  7 --run, lag 10--> A ends at 17
    call 2 ends at 4 --launch, lag 5--> kernel B starts at max(4 + 5, 17 + 1) = 18   (1: stream edge from the end of A)
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from tracekit.arrays import Bools, Floats, Ints
from tracekit.compiled import compile_lazily
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.semantics import MAX_GAP_NS

MAX_TIMES_BYTES = 16 << 20
"""Of the times of the replays that share a pass."""
MIN_REPLAYS = 4
"""That share a pass even where their times take more: no more than the lags of one replay, and they are as fast."""
FIXED, SCALED = -1, -2
"""In place of an edge's row: a lag that all replays share, and one that each scales with the host's time."""
ROUNDER = 1.5 * 2.0**52
"""Added and subtracted, it rounds as ``np.rint`` does: a double of this size holds whole numbers alone."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Start and end of every node, in nanoseconds from the start of the trace.

    Attributes:
        start_ns: Start by node; CPU nodes first, then GPU activities.
        end_ns: End by node.
        work_ns: Working time of each activity, in the order of the kernel table. A collective's remaining time is
            waiting for other ranks.
        lag_ns: Minimum distance along every edge that this timeline was replayed with.
        graph: The graph it is a timeline of.
        host_alone: The same graph for a replay without the GPU's work, if other ranks change that; None for ``graph``.
    """

    start_ns: Ints
    end_ns: Ints
    work_ns: Ints
    lag_ns: Ints
    graph: Graph
    host_alone: Graph | None = None

    @property
    def host_node_count(self) -> int:
        """Number of CPU nodes."""
        return self.graph.nodes.n_host

    @property
    def mark_count(self) -> int:
        """Number of step marks; they are the last CPU nodes."""
        return self.graph.nodes.n_marks

    @property
    def activity_start_ns(self) -> Ints:
        """Starts of the activities, in the order of the kernel table."""
        return self.start_ns[self.host_node_count :]

    @property
    def activity_end_ns(self) -> Ints:
        """Ends of the activities, in the order of the kernel table."""
        return self.end_ns[self.host_node_count :]

    def find_end_marks(self, steps: Ints) -> Ints:
        """Return the CPU nodes that mark the ends of steps; the timeline must have marks.

        Args:
            steps: Row indices of the steps in the table of all steps.
        """
        return self.host_node_count - self.mark_count // 2 + steps


def build_measured_timeline(graph: Graph) -> Timeline:
    """Return the timeline as it was recorded."""
    nodes = graph.nodes
    return Timeline(nodes.start_ns, nodes.end_ns, graph.work_ns, compute_lags(graph), graph)


def replay(graph: Graph, durations_ns: Ints | None = None, host_time: float = 1.0) -> Timeline:
    """Replay the graph.

    Args:
        graph: The dependency graph.
        durations_ns: Duration of each activity, in the order of the kernel table; collectives without waiting for other
            ranks. ``None`` for the measured durations.
        host_time: Factor on the duration of the host's own work; 1.0 for the measured speed.
    """
    lag = compute_lags(graph, durations_ns, host_time)
    times = compute_earliest_times(graph.first, graph.src, lag, graph.release_ns)[graph.vertex]
    work_ns = graph.work_ns if durations_ns is None else durations_ns
    return Timeline(times[0::2], times[1::2], work_ns, lag, graph)


@dataclass(frozen=True, slots=True)
class ReplayTimes:
    """What differs between replays of one graph.

    Attributes:
        durations_ns: Duration of each activity, as for :func:`replay`.
        host_time: Factor on the duration of the host's own work.
        unrecorded_time: Factor on the duration of the GPU's work that isn't in the trace.
    """

    durations_ns: Ints
    host_time: float = 1.0
    unrecorded_time: float = 1.0


class Replayer:
    """Replays one graph many times, several times in one pass over its edges, in the same memory.

    Fresh memory would take longer than the replay: the system clears it page by page.

    Activities and unrecorded work have a row of lags, one per replay. Those of other edges are computed on the way:
    to write and to read a row for each edge would take longer than the pass itself::

        row_of_edge[edge]  FIXED: lag_ns[edge]  SCALED: lag_ns[edge] * host_time[replay]  else: rows[row, replay]
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._row_of_edge = _find_rows(graph)
        self._unrecorded_ns = graph.lag_ns[graph.unrecorded_edges, None]
        self._most = max(MAX_TIMES_BYTES // (graph.release_ns.nbytes + 1), MIN_REPLAYS)
        self._time, self._by_node = np.empty(0, np.int64), np.empty_like(graph.release_ns)

    def replay(self, times: Iterable[ReplayTimes]) -> Iterator[Timeline]:
        """Replay as :func:`replay` does, as often in one pass as memory allows.

        A timeline's starts and ends hold until the next one. Its lags are the measured ones.
        """
        asked = iter(times)
        while several := list(islice(asked, self._most)):
            earliest = self._compute_earliest_times(several)
            for place, one in enumerate(several):
                nodes = np.take(earliest[place], self._graph.vertex, out=self._by_node, mode="clip")
                yield Timeline(nodes[0::2], nodes[1::2], one.durations_ns, self._graph.lag_ns, self._graph)

    def _compute_earliest_times(self, several: Sequence[ReplayTimes]) -> Ints:
        """Compute the time of every vertex, with a row for each replay."""
        graph, count = self._graph, len(several)
        work_ns = np.stack([one.durations_ns for one in several], axis=1) + graph.kept_ns[:, None]
        unrecorded_ns = np.rint(self._unrecorded_ns * np.array([one.unrecorded_time for one in several]))
        rows = np.concatenate([work_ns, unrecorded_ns.astype(np.int64)])
        host_time = np.array([one.host_time for one in several])
        size = graph.vertex.size * count
        if self._time.size < size:
            self._time = np.empty(size, np.int64)
        time = self._time[:size].reshape(count, -1)
        time[...] = graph.release_ns
        _delay_together(
            graph.vertex.size, count, graph.first, graph.src, graph.lag_ns, self._row_of_edge, rows, host_time, time
        )
        return time


def _find_rows(graph: Graph) -> Ints:
    """Find the row that holds each edge's lags: of an activity, or of unrecorded work after these."""
    row = np.full(graph.src.size, FIXED)
    row[graph.host_edges] = SCALED
    row[graph.run_edge] = np.arange(graph.run_edge.size)
    row[graph.transfer_edge] = graph.transfer_activity
    row[graph.unrecorded_edges] = graph.run_edge.size + np.arange(graph.unrecorded_edges.size)
    return row


@compile_lazily
def _delay_together(
    vertices: int,
    replays: int,
    first: Ints,
    src: Ints,
    lag_ns: Ints,
    row_of_edge: Ints,
    rows: Ints,
    host_time: Floats,
    time: Ints,
) -> int:  # pragma: no cover - compiled
    for vertex in range(vertices):
        for edge in range(first[vertex], first[vertex + 1]):
            row = row_of_edge[edge]
            for at in range(replays):
                lag = lag_ns[edge]
                if row == SCALED:
                    lag = int(lag * host_time[at] + ROUNDER - ROUNDER)
                elif row != FIXED:
                    lag = rows[row * replays + at]
                here = at * vertices + vertex
                time[here] = max(time[here], time[at * vertices + src[edge]] + lag)
    return 0


def replay_host_alone(timeline: Timeline) -> Ints:
    """Replay a timeline without the GPU's work, that from before the trace included; return the starts of the nodes."""
    graph, lag = remove_gpu_work(timeline.host_alone or timeline.graph, timeline.lag_ns)
    return compute_earliest_times(graph.first, graph.src, lag, graph.release_ns)[graph.vertex[0::2]]


def remove_gpu_work(graph: Graph, lag_ns: Ints) -> tuple[Graph, Ints]:
    """Return a graph and the distances along its edges without the GPU's work, that from before the trace included."""
    lag, release = lag_ns.copy(), graph.release_ns.copy()
    lag[graph.run_edge] = lag[graph.transfer_edge] = 0
    release[graph.vertex[2 * graph.nodes.activities]] = 0
    return replace(graph, release_ns=release), lag


def compute_lags(graph: Graph, durations_ns: Ints | None = None, host_time: float = 1.0) -> Ints:
    """Compute the minimum distance along every edge for a replay; arguments as for :func:`replay`."""
    lag = graph.lag_ns.copy()
    if host_time != 1.0:
        lag[graph.host_edges] = np.rint(lag[graph.host_edges] * host_time)
    _set_durations(graph, graph.work_ns if durations_ns is None else durations_ns, lag)
    return lag


def _set_durations(graph: Graph, durations_ns: Ints, lag_ns: Ints) -> None:
    """Set the lags that hold the durations of activities."""
    run = durations_ns + graph.kept_ns
    lag_ns[graph.run_edge] = run
    lag_ns[graph.transfer_edge] = run[graph.transfer_activity]


def compute_earliest_times(first: Ints, src: Ints, lag_ns: Ints, release_ns: Ints) -> Ints:
    """Compute the longest path to every vertex; edges point forward and are sorted by destination."""
    time = release_ns.copy()
    _delay_by_edges(time.size, first, src, lag_ns, time)
    return time


def replay_meeting(timelines: Sequence[Timeline], rows: Ints) -> list[Timeline]:
    """Replay ranks that run one program at different speeds and meet in some of its activities.

    Each begins such an activity by itself; all end it once the last one has come and the slowest transfer is done::

        rank 0 | backward | waits        | all-reduce |
        rank 1 | backward                | all-reduce |

    Args:
        timelines: The program on each rank alone. Their graphs differ in nothing but times.
        rows: The activities in which they meet.
    """
    many, graph = len(timelines), timelines[0].graph
    lag = np.stack([one.lag_ns for one in timelines])
    meeting = np.concatenate([graph.run_edge[rows], graph.transfer_edge[np.isin(graph.transfer_activity, rows)]])
    lag[:, meeting] = lag[:, meeting].max(axis=0)
    other, mine = np.nonzero(~np.eye(many, dtype=np.bool_))
    edge = np.concatenate([np.tile(np.arange(graph.src.size), many), np.tile(meeting, mine.size)])
    source_rank = np.concatenate([np.repeat(np.arange(many), graph.src.size), np.repeat(other, meeting.size)])
    rank = np.concatenate([np.repeat(np.arange(many), graph.src.size), np.repeat(mine, meeting.size)])
    src, dst = graph.src[edge] * many + source_rank, graph.dst[edge] * many + rank
    order = np.argsort(dst, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=graph.vertex.size * many))])
    release = np.stack([one.graph.release_ns for one in timelines], axis=1).ravel()
    earliest = compute_earliest_times(first, src[order], lag[rank, edge][order], release).reshape(-1, many)
    by_rank = (earliest[graph.vertex, place] for place in range(many))
    return [
        replace(one, start_ns=times[0::2], end_ns=times[1::2], lag_ns=lag[place])
        for place, (one, times) in enumerate(zip(timelines, by_rank, strict=True))
    ]


@compile_lazily
def _delay_by_edges(
    vertices: int, first: Ints, src: Ints, lag_ns: Ints, time: Ints
) -> int:  # pragma: no cover - compiled
    for vertex in range(vertices):
        latest = time[vertex]
        for edge in range(first[vertex], first[vertex + 1]):
            latest = max(latest, time[src[edge]] + lag_ns[edge])
        time[vertex] = latest
    return 0


@dataclass(frozen=True, slots=True)
class UnknownTimes:
    """Factors on the time of which the trace doesn't say what it was.

    Attributes:
        unrecorded: On work that isn't recorded.
        unexplained: On gaps that nothing explains.
    """

    unrecorded: float = 1.0
    unexplained: float = 1.0


MEASURED_TIMES = UnknownTimes()


def scale_unknown_time(graph: Graph, times: UnknownTimes) -> Graph:
    """Return a graph in which the time of unknown origin takes longer or shorter."""
    if times == MEASURED_TIMES:
        return graph
    unexplained = _find_unexplained_edges(graph)
    if not (graph.unrecorded_edges.size or unexplained.any()):
        return graph
    lag_ns = graph.lag_ns.copy()
    for edges, factor in ((graph.unrecorded_edges, times.unrecorded), (unexplained, times.unexplained)):
        lag_ns[edges] = np.rint(lag_ns[edges] * factor)
    return replace(graph, lag_ns=lag_ns, release_ns=_scale_releases(graph, times.unexplained))


def _find_unexplained_edges(graph: Graph) -> Bools:
    found = (graph.kind == EdgeKind.STALL) | ((graph.kind == EdgeKind.STREAM) & (graph.lag_ns > MAX_GAP_NS))
    if not (graph.kind == EdgeKind.LAUNCH).any():
        nodes = graph.nodes
        at_mark = np.zeros(graph.vertex.size, dtype=np.bool_)
        at_mark[graph.vertex[2 * np.arange(nodes.n_host - nodes.n_marks, nodes.n_host)]] = True
        found |= (graph.kind == EdgeKind.PROGRAM) & at_mark[graph.dst]
    unexplained: Bools = found
    return unexplained


def _scale_releases(graph: Graph, factor: float) -> Ints:
    """Scale the gaps before activities that start when they were measured, as no edge holds them."""
    activities = graph.nodes.activities
    start, end = graph.nodes.start_ns[activities], graph.nodes.end_ns[activities]
    order = np.argsort(start, kind="stable")
    gap = np.zeros(order.size, dtype=np.int64)
    gap[1:] = start[order[1:]] - np.maximum.accumulate(end[order])[:-1]
    idle_ns = np.empty_like(gap)
    idle_ns[order] = np.cumsum(np.where(gap > MAX_GAP_NS, gap, 0))
    vertex = graph.vertex[2 * activities]
    held = graph.first[vertex] == graph.first[vertex + 1]
    release_ns = graph.release_ns.copy()
    moved = np.rint((factor - 1) * idle_ns[held]).astype(np.int64)
    release_ns[vertex[held]] = np.maximum(release_ns[vertex[held]] + moved, 0)
    return release_ns
