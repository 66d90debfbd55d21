"""Which way each table is sharded and where its shards lie, with the loads of all ranks."""

from collections.abc import Sequence

import numpy as np

from tracekit.arrays import Bools, Floats, Ints
from tracekit.sharding.candidates import ShardingType
from tracekit.sharding.loads import Candidate, Exchange, Load
from tracekit.sharding.setting import ShardingSetting

STARTED_US = 10.0
"""Time of a plan that a change has to save: less is rounding."""
OF_ROWS = ("reduce_scatter", "all_gather")
"""Collectives of sums of tables split by rows, and of their gradients."""


class Assignment:
    """An assignment that is changed step by step.

    Attributes:
        candidates: Ways to shard each table.
        chosen: The way of each table; -1 where it has none yet.
        ranks: Ranks of each table's shards.
        loads: Loads of all ranks, by ``Load``.
    """

    def __init__(self, candidates: Sequence[Sequence[Candidate]], exchange: Exchange) -> None:
        self.candidates = candidates
        self.exchange = exchange
        self.chosen = [-1] * len(candidates)
        self.ranks: list[Ints] = [np.zeros(0, np.int64)] * len(candidates)
        self.loads = np.zeros((exchange.setting.ranks, len(Load)))
        self.shared_bytes = np.zeros(2)

    def copy(self) -> "Assignment":
        """Return an assignment that changes on its own."""
        other = Assignment(self.candidates, self.exchange)
        other.chosen, other.ranks = list(self.chosen), list(self.ranks)
        other.loads, other.shared_bytes = self.loads.copy(), self.shared_bytes.copy()
        return other

    def get_candidate(self, table: int) -> Candidate:
        """Return how a table is sharded."""
        return self.candidates[table][self.chosen[table]]

    def put(self, table: int, choice: int, ranks: Ints) -> None:
        """Put the shards of a table on ranks."""
        self._add(self.candidates[table][choice], ranks, 1.0)
        self.chosen[table], self.ranks[table] = choice, ranks

    def take(self, table: int) -> None:
        """Take the shards of a table away."""
        self._add(self.get_candidate(table), self.ranks[table], -1.0)
        self.chosen[table], self.ranks[table] = -1, np.zeros(0, np.int64)

    def _add(self, candidate: Candidate, ranks: Ints, sign: float) -> None:
        self.loads[ranks] += sign * candidate.load
        self.shared_bytes += sign * candidate.shared_bytes

    def find_ranks(self, table: int, choice: int) -> Ints | None:
        """Find the ranks on which shards add least to the step; None where no rank has memory left for them."""
        candidate = self.candidates[table][choice]
        free = fits_memory(self.loads + candidate.load, self.exchange.setting)
        setting = self.exchange.setting
        if candidate.option.type is ShardingType.TABLE_ROW_WISE:
            return self._find_node(candidate, free)
        if not candidate.option.is_placed:
            return np.arange(setting.ranks) if free.all() else None
        if int(free.sum()) < candidate.shards:
            return None
        busy = np.where(free, self._weigh(self.loads + candidate.load), np.inf)
        return np.asarray(np.sort(np.argsort(busy, kind="stable")[: candidate.shards]))

    def _find_node(self, candidate: Candidate, free: Bools) -> Ints | None:
        setting = self.exchange.setting
        nodes = np.arange(setting.ranks).reshape(setting.cluster.nodes, setting.ranks_per_node)
        usable = free[nodes].all(axis=1)
        if not usable.any():
            return None
        busy = np.where(usable, self._weigh(self.loads + candidate.load)[nodes].max(axis=1), np.inf)
        return np.asarray(nodes[int(np.argmin(busy))])

    def _weigh(self, loads: Floats) -> Floats:
        """Return how busy ranks with some loads are, in us, as if each were the slowest in all."""
        return compute_rank_us(loads, self.exchange)

    def compute_step_us(self) -> float:
        """Compute the time of a step's look-ups, updates and exchanges."""
        return float(compute_rank_us(self.loads.max(axis=0), self.exchange)) + self.compute_shared_us()

    def compute_shared_us(self) -> float:
        """Compute the time of the collectives in which all ranks have the same part."""
        return compute_shared_us(self.shared_bytes, self.exchange)


def fits_memory(loads: Floats, setting: ShardingSetting) -> Bools:
    """Return which ranks' loads, by ``Load`` along the last axis, fit into the memory of GPU and host."""
    on_gpu = loads[..., Load.MEMORY] <= setting.capacity_bytes
    return np.asarray(on_gpu & (loads[..., Load.HOST_MEMORY] <= setting.host_capacity_bytes))


def compute_rank_us(loads: Floats, exchange: Exchange) -> Floats:
    """Compute the time that loads take: look-up, update, sums and their gradients, and indices.

    Nodes reduce the sums of their own tables at the same time.

    The dense layers' forward pass hides the exchange of the next batch's indices.

    Args:
        loads: By ``Load`` along the last axis.
        exchange: Times of collectives.
    """
    sums = 2 * exchange.compute_us("all_to_all", loads[..., Load.SENT])
    indices = exchange.compute_us("all_to_all", loads[..., Load.INDICES]) - exchange.setting.dense_time_us
    in_node = sum(exchange.compute_us(name, loads[..., Load.NODE], within_node=True) for name in OF_ROWS)
    return np.asarray(loads[..., Load.LOOKUP] + loads[..., Load.UPDATE] + sums + in_node + np.maximum(indices, 0.0))


def compute_shared_us(shared_bytes: Floats, exchange: Exchange) -> float:
    """Compute the time of reduce-scatters and gathers of sums over all ranks, and of all-reduces."""
    scattered, reduced = shared_bytes
    total = sum(float(exchange.compute_us(name, scattered)) for name in OF_ROWS)
    return total + float(exchange.compute_us("all_reduce", reduced))
