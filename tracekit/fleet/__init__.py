"""Jobs of many ranks, worked on rank by rank: what leaves a rank is small, whatever its trace holds.

Each rank is read, classified and linked alone, by any engine; its tables stay on disk. Joined are its collectives and
its compressed graph (:mod:`tracekit.replay.compressed`). A replay of the job takes two rounds over the ranks: each
compresses its graph, the rendezvous of all are replayed together, and each replays its own graph between them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.fleet.model import FleetReport
    from tracekit.fleet.options import FleetOptions
    from tracekit.fleet.predict import predict_fleet

__all__ = ["FleetOptions", "FleetReport", "predict_fleet"]

_MODULES = {"FleetOptions": "options", "FleetReport": "model", "predict_fleet": "predict"}


def __getattr__(name: str) -> Any:
    """Import what is asked for on first use: workers need neither, and start in less time."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
