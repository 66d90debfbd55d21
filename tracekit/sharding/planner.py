"""Plan: assign tables greedily with several choices of ways to shard them, improve each, and rank what comes out."""

from collections.abc import Callable, Sequence

from tracekit.messages import Message
from tracekit.messages import sharding as messages
from tracekit.sharding.assignment import Assignment
from tracekit.sharding.candidates import ComputeKernel, ShardingType
from tracekit.sharding.errors import ShardingError
from tracekit.sharding.evaluate import evaluate_assignment
from tracekit.sharding.loads import Candidate, Exchange, Load, build_candidates
from tracekit.sharding.plan import ShardingPlan, ShardingPlans
from tracekit.sharding.search import Choice, allow_all, assign_greedily, improve
from tracekit.sharding.setting import ShardingSetting
from tracekit.sharding.tables import PlannedTable

BEST = "best found"
DOUBTFUL_FRACTION = 0.05
"""Of a time, within which plans aren't ranked: that the law misses between plans of one cluster, which share its error
in general. A judgement; no public measurements of plans on one cluster were found."""


def _allow_only(*types: ShardingType) -> Choice:
    def allowed(ways: Sequence[Candidate]) -> list[int]:
        """Allow some types on the GPUs, in their order; then all others, if none of these fits."""
        rest = allow_all(ways)
        mine = [
            place
            for kind in types
            for place in rest
            if ways[place].option.type is kind and ways[place].option.kernel is not ComputeKernel.HOST
        ]
        return mine or rest

    return allowed


PLANS: dict[str, Choice] = {
    "table-wise": _allow_only(ShardingType.TABLE_WISE),
    "column-wise": _allow_only(ShardingType.COLUMN_WISE, ShardingType.TABLE_WISE),
    "row-wise": _allow_only(ShardingType.ROW_WISE, ShardingType.TABLE_WISE),
    "row-wise in nodes": _allow_only(ShardingType.TABLE_ROW_WISE),
}
"""Plans of one way to shard tables each, placed as well as possible, to compare the best with."""


def plan_sharding(
    tables: Sequence[PlannedTable],
    setting: ShardingSetting,
    progress: Callable[[str], None] = lambda name: None,
) -> ShardingPlans:
    """Find the fastest plan, and the best of each way to shard tables.

    Args:
        tables: The tables.
        setting: The cluster and the batch.
        progress: Called with the name of each plan as its search begins.

    Returns:
        The plans, the fastest first.

    Raises:
        ShardingError: There are no tables, or they don't fit.
    """
    if not tables:
        raise ShardingError(messages.SHARDING_TABLES_MISSING())
    exchange = Exchange(setting)
    candidates = build_candidates(tables, setting)
    _check_memory(tables, candidates, setting)
    found: dict[str, Assignment] = {}
    for name, allowed in PLANS.items():
        progress(name)
        start = assign_greedily(candidates, exchange, allowed)
        if start is not None and _has_own_way(start, name):
            found[name] = improve(start, allowed)
    progress(BEST)
    starts = [*found.values(), *filter(None, [assign_greedily(candidates, exchange, allow_all)])]
    if not starts:
        raise ShardingError(_describe_shortage(tables, setting))
    improved = [improve(start, allow_all) for start in starts]
    best = min(improved, key=Assignment.compute_step_us)
    plans = [evaluate_assignment(BEST, tables, best)]
    plans += [evaluate_assignment(name, tables, one) for name, one in found.items()]
    ranked = _drop_equal(sorted(plans, key=lambda plan: (plan.time_us, plan.name != BEST)))
    return ShardingPlans(setting, tuple(ranked), tuple(_collect_notes(tables, ranked)))


def _has_own_way(assignment: Assignment, name: str) -> bool:
    """Return whether a plan has at least one table sharded by what its name says."""
    types = {
        "table-wise": ShardingType.TABLE_WISE,
        "column-wise": ShardingType.COLUMN_WISE,
        "row-wise": ShardingType.ROW_WISE,
        "row-wise in nodes": ShardingType.TABLE_ROW_WISE,
    }
    return any(assignment.get_candidate(t).option.type is types[name] for t in range(len(assignment.chosen)))


def _check_memory(
    tables: Sequence[PlannedTable], candidates: Sequence[Sequence[Candidate]], setting: ShardingSetting
) -> None:
    """Raise an error where a table can't lie anywhere."""
    for table, ways in zip(tables, candidates, strict=True):
        least = min(float(way.load[Load.MEMORY]) for way in ways)
        if least > setting.capacity_bytes:
            raise ShardingError(
                messages.TABLE_EXCEEDS_MEMORY(
                    table=table.name, needed_bytes=least, usable_bytes=max(setting.capacity_bytes, 0.0)
                )
            )


def _describe_shortage(tables: Sequence[PlannedTable], setting: ShardingSetting) -> Message:
    needed = sum(table.weight_bytes + table.state_bytes for table in tables)
    return messages.TABLES_EXCEED_MEMORY(
        tables=len(tables),
        needed_bytes=needed,
        ranks=setting.ranks,
        usable_bytes=max(setting.capacity_bytes, 0.0) * setting.ranks,
    )


def _drop_equal(plans: Sequence[ShardingPlan]) -> list[ShardingPlan]:
    """Leave out plans that are the best one under another name."""
    best = next(plan for plan in plans if plan.name == BEST)
    return [plan for plan in plans if plan is best or plan.tables != best.tables]


def _collect_notes(tables: Sequence[PlannedTable], plans: Sequence[ShardingPlan]) -> list[Message]:
    notes = []
    unknown = sum(table.pattern is None for table in tables)
    if unknown:
        notes.append(messages.SHARDING_SKEW_ASSUMED(tables=unknown))
    close = [plan.name for plan in plans[1:] if plan.time_us <= plans[0].time_us * (1 + DOUBTFUL_FRACTION)]
    if close:
        notes.append(messages.SHARDING_PLANS_EQUAL(plans=close, within_pct=100 * DOUBTFUL_FRACTION))
    best = next(plan for plan in plans if plan.name == BEST)
    hosted = sum(one.kernel is ComputeKernel.HOST for one in best.tables)
    if hosted:
        notes.append(messages.SHARDING_ON_HOST(tables=hosted))
    return notes
