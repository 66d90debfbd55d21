"""Search for the fastest assignment: the longest tables first, then changes at the slowest ranks.

    greedy   tables by what they cost, each on the ranks that are least busy with it
    change   at the slowest rank: another way to shard a table, a shard moved, two shards swapped

The search ends where no change of these helps.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tracekit.arrays import Bools, Floats, Ints
from tracekit.parallelism.sharded_tables import ExchangeGroup
from tracekit.sharding.candidates import ShardingSetting
from tracekit.sharding.loads import Candidate, Exchange, Load

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
        if candidate.option.is_split_in_nodes:
            return self._find_nodes(candidate, free)
        if not candidate.option.is_placed:
            return np.arange(setting.ranks) if free.all() else None
        if int(free.sum()) < candidate.shards:
            return None
        busy = np.where(free, self._weigh(self.loads + candidate.load), np.inf)
        return np.asarray(np.sort(np.argsort(busy, kind="stable")[: candidate.shards]))

    def _find_nodes(self, candidate: Candidate, free: Bools) -> Ints | None:
        setting = self.exchange.setting
        nodes = np.arange(setting.ranks).reshape(setting.cluster.nodes, setting.ranks_per_node)
        usable = free[nodes].all(axis=1)
        if int(usable.sum()) < candidate.option.columns:
            return None
        busy = np.where(usable, self._weigh(self.loads + candidate.load)[nodes].max(axis=1), np.inf)
        chosen = np.sort(np.argsort(busy, kind="stable")[: candidate.option.columns])
        return np.asarray(nodes[chosen].ravel())

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

    ``loads`` are by ``Load`` along the last axis.
    """
    sums = exchange.compute_us("all_to_all", loads[..., Load.SENT])
    sums = 2 * (sums + exchange.compute_us("all_to_all", loads[..., Load.RAIL], ExchangeGroup.RAIL))
    indices = exchange.compute_us("all_to_all", loads[..., Load.INDICES]) - exchange.setting.dense_time_us
    in_node = sum(exchange.compute_us(name, loads[..., Load.NODE], ExchangeGroup.NODE) for name in OF_ROWS)
    return np.asarray(loads[..., Load.LOOKUP] + loads[..., Load.UPDATE] + sums + in_node + np.maximum(indices, 0.0))


def compute_shared_us(shared_bytes: Floats, exchange: Exchange) -> float:
    """Compute the time of reduce-scatters and gathers of sums over all ranks, and of all-reduces."""
    scattered, reduced = shared_bytes
    total = sum(float(exchange.compute_us(name, scattered)) for name in OF_ROWS)
    return total + float(exchange.compute_us("all_reduce", reduced))


MAX_CHANGES = 2000
MAX_TRIED_TABLES = 24
"""Tables at the slowest rank whose other ways are tried, and shards that are swapped: those that cost most."""

Choice = Callable[[Sequence[Candidate]], Sequence[int]]
"""Which ways to shard a table are allowed, in the order in which they are preferred."""


def assign_greedily(
    candidates: Sequence[Sequence[Candidate]], exchange: Exchange, allowed: Choice, *, weighs: bool = False
) -> Assignment | None:
    """Assign tables one by one, those that cost most first; None where one fits nowhere.

    Where it ``weighs``, the way that adds least to the step is taken; else the first that fits.
    """
    found = Assignment(candidates, exchange)
    first = np.array([ways[allowed(ways)[0]].load for ways in candidates])
    size = first[:, Load.MEMORY] / exchange.setting.capacity_bytes
    order = np.argsort(-np.maximum(compute_rank_us(first, exchange), size * compute_rank_us(first, exchange).max()))
    for table in order.tolist():
        fitting = _list_fitting(found, table, allowed)
        if weighs:
            fitting = iter(sorted(fitting, key=lambda one: _time_with(found, candidates[table][one[0]], one[1]))[:1])
        place = next(fitting, None)
        if place is None:
            return None
        found.put(table, *place)
    return found


def _list_fitting(assignment: Assignment, table: int, allowed: Choice) -> Iterator[tuple[int, Ints]]:
    """Yield the allowed ways for which there is room, with the ranks."""
    for choice in allowed(assignment.candidates[table]):
        ranks = assignment.find_ranks(table, choice)
        if ranks is not None:
            yield choice, ranks


def improve(start: Assignment, allowed: Choice) -> Assignment:
    """Change an assignment until nothing helps."""
    best, best_us = start.copy(), start.compute_step_us()
    for _ in range(MAX_CHANGES):
        changes = (_try_moves, _try_swaps, _try_other_ways)
        change = next((one for attempt in changes if (one := attempt(best, best_us, allowed)) is not None), None)
        if change is None:
            return best
        for table, choice, ranks in change:
            best.take(table)
            best.put(table, choice, ranks)
        best_us = best.compute_step_us()
    return best


Change = list[tuple[int, int, Ints]]


def _find_slowest(assignment: Assignment) -> list[int]:
    """Find the ranks with most to do, in all and in each kind of load but memory."""
    busy = compute_rank_us(assignment.loads, assignment.exchange)
    kinds = assignment.loads[:, : Load.MEMORY].argmax(axis=0)
    return list(dict.fromkeys([int(busy.argmax()), *map(int, kinds)]))


def _list_shards(assignment: Assignment, rank: int) -> list[int]:
    """List the tables with a shard on a rank that may lie elsewhere, those that cost most first."""
    placed = [
        table
        for table, ranks in enumerate(assignment.ranks)
        if assignment.get_candidate(table).option.is_placed and rank in ranks
    ]
    costs = np.array([assignment.get_candidate(table).load for table in placed]).reshape(len(placed), len(Load))
    order = np.argsort(-compute_rank_us(costs, assignment.exchange), kind="stable")
    return [placed[place] for place in order.tolist()]


def _compute_changed_us(assignment: Assignment, rank: int, leaves: Floats, arrives: Floats) -> Floats:
    """Compute the step's time where loads leave a rank and arrive at each of the others.

    ``leaves`` is what the rank loses, by change, other rank and load; ``arrives`` is what the other one gets.

    Returns:
        Times by change and other rank; infinite where memory doesn't suffice.
    """
    loads = assignment.loads
    here, there = loads[rank] - leaves, loads + arrives
    most = np.maximum(np.maximum(here, there), _find_most_elsewhere(loads, rank))
    fits = fits_memory(np.maximum(here, there), assignment.exchange.setting)
    fits[..., rank] = False
    return np.where(fits, compute_rank_us(most, assignment.exchange), np.inf)


def _find_most_elsewhere(loads: Floats, rank: int) -> Floats:
    """Find, for each other rank, the most of all ranks but that one and ``rank``."""
    others = loads.copy()
    others[rank] = 0.0
    top = np.sort(others, axis=0)[-2:]
    # Of the two largest, the one that isn't the other rank's.
    return np.asarray(np.where(others == top[-1], top[0], top[-1]))


def _try_moves(assignment: Assignment, best_us: float, allowed: Choice) -> Change | None:
    """Move a shard from a slow rank to another one."""
    del allowed
    shared = assignment.compute_shared_us()
    for rank in _find_slowest(assignment):
        tables = _list_shards(assignment, rank)
        if not tables:
            continue
        moved = np.array([assignment.get_candidate(table).load for table in tables])[:, None, :]
        times = _compute_changed_us(assignment, rank, moved, moved) + shared
        for number, table in enumerate(tables):
            times[number, assignment.ranks[table]] = np.inf
        place, other = divmod(int(times.argmin()), times.shape[1])
        if times[place, other] < best_us - _get_least_gain(best_us):
            return [_move(assignment, tables[place], rank, other)]
    return None


def _try_swaps(assignment: Assignment, best_us: float, allowed: Choice) -> Change | None:
    """Swap a shard of a slow rank for one of another."""
    del allowed
    shared = assignment.compute_shared_us()
    for rank in _find_slowest(assignment):
        mine = _list_shards(assignment, rank)[:MAX_TRIED_TABLES]
        pairs = [
            (table, int(other))
            for table in range(len(assignment.ranks))
            if assignment.get_candidate(table).option.is_placed and rank not in assignment.ranks[table]
            for other in assignment.ranks[table]
        ]
        if not mine or not pairs:
            continue
        theirs = np.array([assignment.get_candidate(table).load for table, _ in pairs])
        others = np.array([other for _, other in pairs])
        best = (np.inf, 0, 0)
        for number, table in enumerate(mine):
            difference = assignment.get_candidate(table).load - theirs
            times = _compute_pair_us(assignment, rank, others, difference) + shared
            times[np.isin(others, assignment.ranks[table])] = np.inf
            place = int(times.argmin())
            best = min(best, (float(times[place]), number, place))
        if best[0] < best_us - _get_least_gain(best_us):
            table, (swapped, other) = mine[best[1]], pairs[best[2]]
            return [_move(assignment, table, rank, other), _move(assignment, swapped, other, rank)]
    return None


def _compute_pair_us(assignment: Assignment, rank: int, others: Ints, difference: Floats) -> Floats:
    """Compute the step's time where a rank loses what one other rank gets, for each of several changes."""
    loads = assignment.loads
    here, there = loads[rank] - difference, loads[others] + difference
    pair = np.maximum(here, there)
    times = compute_rank_us(np.maximum(pair, _find_most_elsewhere(loads, rank)[others]), assignment.exchange)
    return np.where(fits_memory(pair, assignment.exchange.setting), times, np.inf)


def _try_other_ways(assignment: Assignment, best_us: float, allowed: Choice) -> Change | None:
    """Shard a table of a slow rank in another way."""
    best: tuple[float, Change | None] = (best_us - _get_least_gain(best_us), None)
    tried: set[int] = set()
    for rank in _find_slowest(assignment):
        holders = [table for table, ranks in enumerate(assignment.ranks) if rank in ranks]
        costs = [float(assignment.get_candidate(table).load[:2].sum()) for table in holders]
        order = np.argsort(-np.array(costs), kind="stable")[:MAX_TRIED_TABLES]
        tried |= {holders[place] for place in order.tolist()}
    for table in sorted(tried):
        choice, ranks = assignment.chosen[table], assignment.ranks[table]
        assignment.take(table)
        for other in allowed(assignment.candidates[table]):
            places = assignment.find_ranks(table, other) if other != choice else None
            if places is not None:
                time = _time_with(assignment, assignment.candidates[table][other], places)
                if time < best[0]:
                    best = (time, [(table, other, places)])
        assignment.put(table, choice, ranks)
    return best[1]


def _time_with(assignment: Assignment, candidate: Candidate, ranks: Ints) -> float:
    """Compute the step's time with one more table."""
    loads = assignment.loads.copy()
    loads[ranks] += candidate.load
    shared = compute_shared_us(assignment.shared_bytes + candidate.shared_bytes, assignment.exchange)
    return float(compute_rank_us(loads.max(axis=0), assignment.exchange)) + shared


def _move(assignment: Assignment, table: int, rank: int, other: int) -> tuple[int, int, Ints]:
    ranks = assignment.ranks[table]
    return table, assignment.chosen[table], np.sort(np.where(ranks == rank, other, ranks))


def _get_least_gain(best_us: float) -> float:
    return min(best_us * 1e-4, STARTED_US)


def allow_all(ways: Sequence[Candidate]) -> Sequence[int]:
    """Allow all ways to shard a table, in the order of ``list_options``: the hosts' memory last."""
    return range(len(ways))
