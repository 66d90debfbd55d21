"""Try all assignments of few tables to few ranks, in place of a search."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from tracekit.arrays import Floats, Ints
from tracekit.comm import load_cluster
from tracekit.models.lookups import ZipfPattern
from tracekit.sharding import PlannedTable, ShardingSetting
from tracekit.sharding.loads import Candidate, Exchange, Load, build_candidates
from tracekit.sharding.planner import BEST, find_assignments
from tracekit.sharding.search import compute_rank_us, compute_shared_us, fits_memory

MAX_TABLES = 4
"""Tables of a case, at most: of five, all assignments to three ranks take a second."""


def draw_small_case(seed: int) -> tuple[list[PlannedTable], ShardingSetting]:
    """Draw a case of up to four tables on two or three ranks, small enough to try all assignments."""
    draw = np.random.default_rng(seed)
    ranks = int(draw.integers(2, 4))
    setting = ShardingSetting(load_cluster(f"{ranks}xa100-sxm-80gb"), int(draw.choice([256, 4096, 32768])))
    tables = [
        PlannedTable(
            f"table_{number}",
            int(10 ** draw.uniform(2, 8)),
            int(draw.choice([16, 64, 128, 256])),
            float(draw.choice([1, 4, 30])),
            ZipfPattern(float(draw.choice([0.0, 1.05, 1.2]))),
        )
        for number in range(int(draw.integers(2, MAX_TABLES + 1)))
    ]
    return tables, setting


def measure_excess(seed: int) -> float:
    """Return by what fraction the assignment found is slower than the best of all."""
    tables, setting = draw_small_case(seed)
    candidates, exchange = build_candidates(tables, setting), Exchange(setting)
    return find_assignments(candidates, exchange)[BEST].compute_step_us() / find_least_us(candidates, exchange) - 1


def find_least_us(candidates: Sequence[Sequence[Candidate]], exchange: Exchange) -> float:
    """Return the time of the fastest assignment; infinite where none fits."""
    ranks = exchange.setting.ranks
    loads, shared = np.zeros((1, ranks, len(Load))), np.zeros((1, 2))
    for ways in candidates:
        places = [(way, ranks_) for way in ways for ranks_ in list_places(way, ranks)]
        added = np.zeros((len(places), ranks, len(Load)))
        for number, (way, chosen) in enumerate(places):
            added[number, chosen] = way.shard_loads
        more = np.array([way.shared_bytes for way, _ in places])
        loads = (loads[:, None] + added).reshape(-1, ranks, len(Load))
        shared = (shared[:, None] + more).reshape(-1, 2)
    most = loads.max(axis=1)
    fits = fits_memory(most, exchange.setting)
    times: Floats = np.where(fits, compute_rank_us(most, exchange) + compute_shared_us(shared, exchange), np.inf)
    return float(times.min())


def list_places(way: Candidate, ranks: int) -> list[Ints]:
    """List the ranks that shards may lie on."""
    return [np.array(chosen) for chosen in combinations(range(ranks), way.shards)]
