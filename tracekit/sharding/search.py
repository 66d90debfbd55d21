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
        holds: Whether each rank has a shard of each table, by table and rank.
        movable: Whether the shards of each table may lie on any rank.
        table_loads: Load of the busiest shard of each table.
    """

    def __init__(self, candidates: Sequence[Sequence[Candidate]], exchange: Exchange) -> None:
        self.candidates = candidates
        self.exchange = exchange
        self.chosen = [-1] * len(candidates)
        self.ranks: list[Ints] = [np.zeros(0, np.int64)] * len(candidates)
        self.loads = np.zeros((exchange.setting.ranks, len(Load)))
        self.holds = np.zeros((len(candidates), exchange.setting.ranks), np.bool_)
        self.movable = np.zeros(len(candidates), np.bool_)
        self.table_loads = np.zeros((len(candidates), len(Load)))
        self.shared_bytes = np.zeros(2)

    def copy(self) -> "Assignment":
        """Return an assignment that changes on its own."""
        other = Assignment(self.candidates, self.exchange)
        other.chosen, other.ranks = list(self.chosen), list(self.ranks)
        other.loads, other.shared_bytes = self.loads.copy(), self.shared_bytes.copy()
        other.holds, other.movable, other.table_loads = self.holds.copy(), self.movable.copy(), self.table_loads.copy()
        return other

    def get_candidate(self, table: int) -> Candidate:
        """Return how a table is sharded."""
        return self.candidates[table][self.chosen[table]]

    def put(self, table: int, choice: int, ranks: Ints) -> None:
        """Put the shards of a table on ranks."""
        candidate = self.candidates[table][choice]
        self._add(candidate, ranks, 1.0)
        self.chosen[table], self.ranks[table] = choice, ranks
        self.holds[table, ranks] = True
        self.movable[table], self.table_loads[table] = candidate.option.is_placed, candidate.load

    def take(self, table: int) -> None:
        """Take the shards of a table away."""
        self._add(self.get_candidate(table), self.ranks[table], -1.0)
        self.holds[table] = False
        self.chosen[table], self.ranks[table] = -1, np.zeros(0, np.int64)

    def _add(self, candidate: Candidate, ranks: Ints, sign: float) -> None:
        self.loads[ranks] += sign * candidate.shard_loads
        self.shared_bytes += sign * candidate.shared_bytes

    def find_ranks(self, table: int, choices: Sequence[int]) -> list[Ints | None]:
        """Find the ranks on which shards add least to the step, for several ways to shard a table.

        It is None for a way where no rank has memory left.
        """
        candidates = [self.candidates[table][choice] for choice in choices]
        added = self.loads + np.array([candidate.load for candidate in candidates])[:, None]
        busy = np.where(fits_memory(added, self.exchange.setting), self._weigh(added), np.inf)
        return [self._choose_ranks(*way) for way in zip(candidates, busy, strict=True)]

    def _choose_ranks(self, candidate: Candidate, busy: Floats) -> Ints | None:
        """Choose the ranks of a way to shard a table by how busy they are with it; infinitely without memory."""
        setting, option = self.exchange.setting, candidate.option
        places = np.arange(setting.ranks)[:, None]
        if option.is_split_in_nodes:
            places = places.reshape(setting.cluster.nodes, setting.ranks_per_node)
        count = candidate.shards // places.shape[1]
        of_place = busy[places].max(axis=1)
        chosen = np.sort(np.argsort(of_place, kind="stable")[:count])
        return places[chosen].ravel() if chosen.size == count and np.isfinite(of_place[chosen]).all() else None

    def _weigh(self, loads: Floats) -> Floats:
        """Return how busy ranks with some loads are, in us, as if each were the slowest in all."""
        return compute_rank_us(loads, self.exchange)

    def compute_step_us(self) -> float:
        """Compute the time of a step's look-ups, updates and exchanges."""
        return float(compute_rank_us(self.loads.max(axis=0), self.exchange)) + self.compute_shared_us()

    def compute_shared_us(self) -> float:
        """Compute the time of the collectives in which all ranks have the same part."""
        return float(compute_shared_us(self.shared_bytes, self.exchange))


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


def compute_shared_us(shared_bytes: Floats, exchange: Exchange) -> Floats:
    """Compute the time of reduce-scatters and gathers of sums over all ranks, and of all-reduces.

    ``shared_bytes`` are those of both along the last axis.
    """
    scattered, reduced = shared_bytes[..., 0], shared_bytes[..., 1]
    total = sum(exchange.compute_us(name, scattered) for name in OF_ROWS)
    return np.asarray(total + exchange.compute_us("all_reduce", reduced))


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
            places = list(fitting)
            fitting = iter([places[_compute_with_us(found, table, places).argmin()]] if places else ())
        place = next(fitting, None)
        if place is None:
            return None
        found.put(table, *place)
    return found


def _list_fitting(assignment: Assignment, table: int, allowed: Choice) -> Iterator[tuple[int, Ints]]:
    """Yield the allowed ways for which there is room, with the ranks."""
    choices = allowed(assignment.candidates[table])
    for choice, ranks in zip(choices, assignment.find_ranks(table, choices), strict=True):
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
    placed = np.flatnonzero(assignment.movable & assignment.holds[:, rank])
    order = np.argsort(-compute_rank_us(assignment.table_loads[placed], assignment.exchange), kind="stable")
    return [int(table) for table in placed[order]]


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
        moved = assignment.table_loads[tables][:, None, :]
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
        elsewhere = assignment.movable & ~assignment.holds[:, rank]
        swapped, others = np.nonzero(assignment.holds & elsewhere[:, None])
        if not mine or not swapped.size:
            continue
        theirs = assignment.table_loads[swapped]
        best = (np.inf, 0, 0)
        for number, table in enumerate(mine):
            difference = assignment.table_loads[table] - theirs
            times = _compute_pair_us(assignment, rank, others, difference) + shared
            times[assignment.holds[table, others]] = np.inf
            place = int(times.argmin())
            best = min(best, (float(times[place]), number, place))
        if best[0] < best_us - _get_least_gain(best_us):
            table, other = mine[best[1]], int(others[best[2]])
            return [_move(assignment, table, rank, other), _move(assignment, int(swapped[best[2]]), other, rank)]
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
        holders = np.flatnonzero(assignment.holds[:, rank])
        costs = assignment.table_loads[holders, : Load.SENT].sum(axis=1)
        tried |= set(holders[np.argsort(-costs, kind="stable")[:MAX_TRIED_TABLES]].tolist())
    for table in sorted(tried):
        choice, ranks = assignment.chosen[table], assignment.ranks[table]
        assignment.take(table)
        others = [way for way in _list_fitting(assignment, table, allowed) if way[0] != choice]
        if others:
            times = _compute_with_us(assignment, table, others)
            place = int(times.argmin())
            if times[place] < best[0]:
                best = (float(times[place]), [(table, *others[place])])
        assignment.put(table, choice, ranks)
    return best[1]


def _compute_with_us(assignment: Assignment, table: int, ways: Sequence[tuple[int, Ints]]) -> Floats:
    """Compute the step's time with one more table, for several ways to shard it and their ranks."""
    most, everywhere = np.empty((len(ways), len(Load))), assignment.loads.max(axis=0)
    candidates = [assignment.candidates[table][choice] for choice, _ in ways]
    for place, (candidate, (_, ranks)) in enumerate(zip(candidates, ways, strict=True)):
        most[place] = np.maximum(everywhere, (assignment.loads[ranks] + candidate.shard_loads).max(axis=0))
    shared = assignment.shared_bytes + np.array([candidate.shared_bytes for candidate in candidates])
    return compute_rank_us(most, assignment.exchange) + compute_shared_us(shared, assignment.exchange)


def _move(assignment: Assignment, table: int, rank: int, other: int) -> tuple[int, int, Ints]:
    ranks = assignment.ranks[table]
    return table, assignment.chosen[table], np.sort(np.where(ranks == rank, other, ranks))


def _get_least_gain(best_us: float) -> float:
    return min(best_us * 1e-4, STARTED_US)


def allow_all(ways: Sequence[Candidate]) -> Sequence[int]:
    """Allow all ways to shard a table, in the order of ``list_options``: the hosts' memory last."""
    return range(len(ways))
