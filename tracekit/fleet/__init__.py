"""Jobs of many ranks, worked on rank by rank: what leaves a rank is small, whatever its trace holds.

Each rank is read, classified and linked alone, by any engine; its tables stay on disk. Joined are its collectives and
its compressed graph (:mod:`tracekit.replay.compressed`). A replay of the job takes two rounds over the ranks: each
compresses its graph, the rendezvous of all are replayed together, and each replays its own graph between them. What is
predicted of it is what is predicted of a job in memory (:mod:`tracekit.prediction.part`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.fleet.model import FleetReport
    from tracekit.fleet.predict import predict_fleet
    from tracekit.fleet.read_ranks import DEFAULT_READING, ReadingOptions

__all__ = ["DEFAULT_READING", "FleetReport", "ReadingOptions", "predict_fleet"]

_MODULES = {
    "DEFAULT_READING": "read_ranks",
    "FleetReport": "model",
    "ReadingOptions": "read_ranks",
    "predict_fleet": "predict",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for on first use: workers need neither, and start in less time."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
