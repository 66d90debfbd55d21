"""Jobs of many ranks, worked on rank by rank: what leaves a rank is small, whatever its trace holds.

Each rank is read, classified and linked alone, by any engine; its tables stay on disk. Joined are its collectives and
its compressed graph (:mod:`tracekit.replay.compressed`). A replay of the job takes two rounds over the ranks: each
compresses its graph, the rendezvous of all are replayed together, and each replays its own graph between them.
"""

from tracekit.fleet.model import FleetReport
from tracekit.fleet.predict import FleetOptions, predict_fleet

__all__ = ["FleetOptions", "FleetReport", "predict_fleet"]
