"""Jobs of many ranks: time and memory of a rank, whatever the number of ranks.

`python -m tests.benchmarks.fleet_copies` makes larger jobs from real traces; docs/how-to/fleets.md has their figures.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.benchmarks.timing import best
from tests.fleet.test_fleet import save
from tracekit.arrays import Ints
from tracekit.replay.compressed import CompressedJob, CompressedRank

RANKS, COLLECTIVES = 1024, 60


def made_rank(rank: int) -> CompressedRank:
    """A rank that arrives at each rendezvous a while after the one before, as real ranks of data-parallel jobs do."""
    draw = np.random.default_rng(rank)
    before = np.arange(COLLECTIVES)
    arrival = COLLECTIVES + before
    return CompressedRank(
        rendezvous=COLLECTIVES,
        arrival=arrival,
        src=before[:-1],
        dst=arrival[1:],
        lag_ns=draw.integers(100_000, 200_000, (1, COLLECTIVES - 1)),
        release_ns=np.zeros((1, 2 * COLLECTIVES), np.int64),
    )


def expected_ns(ranks: list[CompressedRank]) -> Ints:
    """When the rendezvous take place: each rank needs so long from one to the next, and the slowest counts."""
    return np.concatenate([[0], np.cumsum(np.max([rank.lag_ns[0] for rank in ranks], axis=0))])


def test_a_thousand_compressed_ranks_are_joined_and_replayed(benchmark):
    """Their 61,000 arrivals take less than a second of CPU."""
    ranks = [made_rank(rank) for rank in range(RANKS)]
    every = [np.arange(COLLECTIVES)] * RANKS

    def join_and_replay() -> Ints:
        return CompressedJob(ranks, every, every, COLLECTIVES).replay(0)

    np.testing.assert_array_equal(join_and_replay(), expected_ns(ranks))
    benchmark.pedantic(join_and_replay, rounds=1)
    assert best(join_and_replay) < 1


MEASURE = """
import resource, sys
from tracekit.engine import InProcessEngine
from tracekit.fleet import predict_fleet
from tracekit.request.options import FleetRequest
predict_fleet(sys.argv[1], FleetRequest(), InProcessEngine(1))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_kib(folder: Path) -> int:
    command = [sys.executable, "-c", MEASURE, str(folder)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_memory_does_not_grow_with_the_ranks(tmp_path):
    """Eight times the ranks take less than a tenth more: nothing of a rank stays but its collectives."""
    few, many = tmp_path / "few", tmp_path / "many"
    for folder, ranks in ((few, 4), (many, 32)):
        folder.mkdir()
        save(folder, ranks)
    assert peak_kib(many) < 1.1 * peak_kib(few)
