"""Jobs of many ranks, worked on rank by rank: what leaves a rank is small, whatever its trace holds.

Each rank is read, classified and linked alone, by any engine; its tables stay on disk. Joined are its collectives and
its compressed graph (:mod:`tracekit.replay.compressed`). A replay of the job takes two rounds over the ranks: each
compresses its graph, the rendezvous of all are replayed together, and each replays its own graph between them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.fleet.model import FleetReport
    from tracekit.fleet.predict import FleetOptions, predict_fleet

__all__ = ["FleetOptions", "FleetReport", "predict_fleet"]


def __getattr__(name: str) -> Any:
    """Import what is asked for on first use: workers need neither, and start in less time."""
    if name in __all__:
        from tracekit.fleet import model, predict

        return getattr(model if name == "FleetReport" else predict, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
