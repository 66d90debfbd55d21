"""One pass over the graph: every moment comes as early as what it waits for allows."""

from dataclasses import dataclass

import numba
import numpy as np

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind

# Work of CPU threads: calls (run edges of activities are set apart) and what lies between them.
ON_HOST = (EdgeKind.RUN, EdgeKind.PROGRAM, EdgeKind.HANDOVER)
_IS_ON_HOST = np.isin(np.arange(len(EdgeKind)), ON_HOST)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Start and end of every node, nanoseconds from the start of the trace.

    Attributes:
        start_ns: By node; CPU nodes first, then activities.
        end_ns: By node.
        work_ns: How long each activity works, in the order of the kernel table; what a collective takes besides is
            waiting for other ranks.
        lag_ns: Least distance along every edge that it was played with.
        cpu: How many CPU nodes there are.
        marks: How many of them, the last ones, are marks.
    """

    start_ns: Ints
    end_ns: Ints
    work_ns: Ints
    lag_ns: Ints
    cpu: int
    marks: int

    @property
    def activity_start_ns(self) -> Ints:
        """Starts of the activities, in the order of the kernel table."""
        return self.start_ns[self.cpu :]

    @property
    def activity_end_ns(self) -> Ints:
        """Ends of the activities, in the order of the kernel table."""
        return self.end_ns[self.cpu :]

    def end_marks(self, steps: Ints) -> Ints:
        """The marks at the ends of steps on the CPU, of a timeline that has any.

        Args:
            steps: Their places among all steps.
        """
        return self.cpu - self.marks // 2 + steps


def measured(graph: Graph) -> Timeline:
    """The timeline as it was recorded."""
    nodes = graph.nodes
    return Timeline(nodes.start_ns, nodes.end_ns, graph.work_ns, lags(graph), nodes.cpu, nodes.marks)


def replay(graph: Graph, durations_ns: Ints | None = None, host_time: float = 1.0) -> Timeline:
    """Play the graph forward.

    Args:
        graph: The dependency graph.
        durations_ns: How long each activity takes, in the order of the kernel table, collectives without waiting for
            other ranks; ``None`` for the measured times.
        host_time: What the CPU's own work takes, as a multiple of the measured time.
    """
    lag = lags(graph, durations_ns, host_time)
    times = _forward(graph.first, graph.src, lag, graph.release_ns)[graph.vertex]
    work_ns = graph.work_ns if durations_ns is None else durations_ns
    return Timeline(times[0::2], times[1::2], work_ns, lag, graph.nodes.cpu, graph.nodes.marks)


def lags(graph: Graph, durations_ns: Ints | None = None, host_time: float = 1.0) -> Ints:
    """Least distance along every edge, with the durations and the host's speed of a replay; arguments as there."""
    lag = graph.lag_ns.copy()
    if host_time != 1.0:
        lag = np.where(_IS_ON_HOST[graph.kind], np.rint(lag * host_time).astype(np.int64), lag)
    run = (graph.work_ns if durations_ns is None else durations_ns) + graph.kept_ns
    lag[graph.run_edge] = run
    lag[graph.transfer_edge] = run[graph.transfer_activity]
    return lag


@numba.njit(cache=True)
def _forward(first: Ints, src: Ints, lag_ns: Ints, release_ns: Ints) -> Ints:  # pragma: no cover - compiled
    """Longest path to every vertex; edges point forward and lie sorted by destination."""
    time = release_ns.copy()
    for vertex in range(release_ns.size):
        latest = time[vertex]
        for edge in range(first[vertex], first[vertex + 1]):
            latest = max(latest, time[src[edge]] + lag_ns[edge])
        time[vertex] = latest
    return time
