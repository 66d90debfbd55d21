"""Edges of the graph: one vertex cannot come before another vertex plus a lag."""

from dataclasses import dataclass
from enum import IntEnum

from tracekit.arrays import Ints


class EdgeKind(IntEnum):
    """The reason why a vertex waits for another.

    ``RUN``, ``PROGRAM``, ``LAUNCH`` and ``STREAM`` follow from CUDA semantics and from what the trace records.
    ``EVENT`` and ``SYNC`` edges are recorded where the trace has ``cuda_sync`` events, and inferred elsewhere.
    ``RENDEZVOUS`` edges are as good as the matching of collectives. ``HANDOVER``, ``OCCUPIED``, ``QUEUE``, ``STALL``
    and ``UNRECORDED`` are heuristics.
    """

    RUN = 0
    PROGRAM = 1
    HANDOVER = 2
    LAUNCH = 3
    STREAM = 4
    EVENT = 5
    SYNC = 6
    QUEUE = 7
    RENDEZVOUS = 8
    OCCUPIED = 9
    STALL = 10
    UNRECORDED = 11


# Kinds that are work of host threads: calls, and the time between calls. Run edges of GPU activities are among them.
HOST_KINDS = (EdgeKind.RUN, EdgeKind.PROGRAM, EdgeKind.HANDOVER)

# Kinds that may be inferred from times and names instead of recorded: they are dropped where edges contradict each
# other.
INFERRED_KINDS = (
    EdgeKind.HANDOVER,
    EdgeKind.EVENT,
    EdgeKind.SYNC,
    EdgeKind.QUEUE,
    EdgeKind.RENDEZVOUS,
    EdgeKind.OCCUPIED,
    EdgeKind.UNRECORDED,
)


@dataclass(frozen=True, slots=True)
class Edges:
    """Constraints ``time[dst] >= time[src] + lag_ns`` on vertices ``src`` and ``dst``, all of one kind."""

    kind: EdgeKind
    src: Ints
    dst: Ints
    lag_ns: Ints


def to_start_vertices(nodes: Ints) -> Ints:
    """Return the vertices at which nodes start."""
    return 2 * nodes


def to_end_vertices(nodes: Ints) -> Ints:
    """Return the vertices at which nodes end."""
    return 2 * nodes + 1
