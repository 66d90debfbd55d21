"""Edges: that one moment can't come before another plus a lag."""

from dataclasses import dataclass
from enum import IntEnum

from tracekit.arrays import Ints


class EdgeKind(IntEnum):
    """Why a moment has to wait for another."""

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


# Kinds that are guessed from times and names, not recorded: these give way where edges contradict each other.
INFERRED = (
    EdgeKind.HANDOVER,
    EdgeKind.EVENT,
    EdgeKind.SYNC,
    EdgeKind.QUEUE,
    EdgeKind.RENDEZVOUS,
    EdgeKind.OCCUPIED,
)


@dataclass(frozen=True, slots=True)
class Edges:
    """``time[dst] >= time[src] + lag_ns`` for vertices ``src``, ``dst``."""

    kind: EdgeKind
    src: Ints
    dst: Ints
    lag_ns: Ints


def starts(nodes: Ints) -> Ints:
    """Vertices at which nodes start."""
    return 2 * nodes


def ends(nodes: Ints) -> Ints:
    """Vertices at which nodes end."""
    return 2 * nodes + 1
