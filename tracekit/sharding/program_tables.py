"""Shard the embedding tables of a program over a cluster's ranks: what its step does in place of its own look-ups.

The prices are those of ``plan_sharding``: the kernels and exchanges that a plan is evaluated by become the step's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from predictors.given_files import describe_failure, read_regular_file
from tracekit.arrays import Ints
from tracekit.bounds import MAX_MODEL_CONFIG_BYTES, MAX_RANKS
from tracekit.comm import Cluster
from tracekit.messages import layouts as messages
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.sharded_tables import ExchangeGroup, TableExchange, TableSharding
from tracekit.program import Program
from tracekit.sharding.candidates import ComputeKernel, ShardingSetting, ShardingType, TableOption, list_options
from tracekit.sharding.loads import Exchange, Load, price_options
from tracekit.sharding.plan import ShardingPlan
from tracekit.sharding.planner import evaluate_assignment, list_kernels, plan_sharding
from tracekit.sharding.search import Assignment
from tracekit.sharding.tables import PlannedTable, ShardingError, TableDefaults, expand_specs, find_tables
from tracekit.workload.ops.table_lookups import FP32_BYTES, OPTIMIZER_STATE

MAX_KEPT_PLANS = 64
UPDATE_OP = r"split_embedding_backward_codegen_(\w+?)_(?:un)?weighted"
"""FBGEMM's backward passes, with the optimizer's name."""
HALF_TYPES = ("fp16", "bf16")


def shard_program_tables(program: Program, cluster: Cluster, layout: Layout) -> Layout:
    """Return the layout with the program's tables sharded over its replicas; as it is where there are none.

    Raises:
        LayoutError: The tables can't be sharded so, or the plan isn't for them.
    """
    tables, batch = find_program_tables(program)
    if not tables:
        return layout
    setting = ShardingSetting(
        take_ranks(cluster, layout.dp), max(round(batch * layout.batch), 1), sum_bytes=find_sum_bytes(program)
    )
    try:
        plan = _find_plan(tuple(tables), setting, layout.plan)
    except ShardingError as error:
        raise LayoutError(error.catalogue_message) from error
    in_node = min(setting.ranks_per_node, layout.dp)
    return replace(layout, ep=in_node, splits_tables=True, tables=describe_step(plan))


def find_program_tables(program: Program) -> tuple[list[PlannedTable], int]:
    """Find the tables of a program of one rank, and its samples; those of a configuration as it lists them."""
    facts = program.trace.capture_facts
    found, batch = find_tables(program, TableDefaults(pattern=program.trace.indices))
    if not facts or not facts.tables or not found:
        return found, batch
    ops = program.kernels["op"].drop_nulls().str.extract(UPDATE_OP).drop_nulls()
    optimizer = ops[0] if len(ops) and ops[0] in OPTIMIZER_STATE else found[0].optimizer
    defaults = TableDefaults(found[0].weight_type, optimizer, program.trace.indices)
    return expand_specs(facts.tables, defaults), batch


def find_sum_bytes(program: Program) -> int:
    """Return the bytes of an exchanged element: those of the type in which most of the dense layers' GEMMs run."""
    gemms = program.kernels.filter(family="gemm").group_by("dtype").len().sort("len", descending=True)
    return FP32_BYTES // 2 if gemms.height and gemms["dtype"][0] in HALF_TYPES else FP32_BYTES


def take_ranks(cluster: Cluster, ranks: int) -> Cluster:
    """Return a cluster of the first ranks of a cluster.

    Raises:
        LayoutError: They fill the last node in part.
    """
    if ranks <= cluster.gpus_per_node:
        part = ranks / cluster.gpus_per_node
        nics = min(max(round(cluster.nics_per_node * part), 1), cluster.nics_per_node)
        memory = cluster.host_memory_gib * part
        return replace(cluster, nodes=1, gpus_per_node=ranks, nics_per_node=nics, host_memory_gib=memory)
    if ranks % cluster.gpus_per_node:
        raise LayoutError(messages.TABLES_FILL_NODES(ranks=ranks, gpus_per_node=cluster.gpus_per_node))
    return replace(cluster, nodes=ranks // cluster.gpus_per_node)


@lru_cache(maxsize=MAX_KEPT_PLANS)
def _find_plan(tables: tuple[PlannedTable, ...], setting: ShardingSetting, path: str | None) -> ShardingPlan:
    if path is None:
        return plan_sharding(tables, setting).best
    return evaluate_plan_file(Path(path), tables, setting)


def describe_step(plan: ShardingPlan) -> TableSharding:
    """Describe what a plan makes its slowest rank do in a step."""
    assignment = plan.assignment
    tables = [one.table for one in plan.tables]
    slowest = next(part.rank for part in plan.parts if part.name == "lookup")
    lookups, updates = (
        tuple(list_kernels(tables, assignment, np.array([slowest]), updates=kind)[0]) for kind in (False, True)
    )
    most, (scattered, reduced) = assignment.loads.max(axis=0), assignment.shared_bytes
    ways = Counter(assignment.get_candidate(number).option.label.replace("_", "-") for number in range(len(tables)))
    return TableSharding(
        tables=len(tables),
        ways=", ".join(f"{count} {way}" for way, count in ways.most_common()),
        lookups=lookups,
        updates=updates,
        sums=_list_exchanges("sums", most, scattered, "reduce_scatter"),
        gradients=_list_exchanges("gradients of sums", most, scattered, "all_gather")[::-1],
        reduced=_drop_empty(TableExchange("gradients of replicated tables", "all_reduce", float(reduced))),
        indices=_drop_empty(TableExchange("indices of the next batch", "all_to_all", float(most[Load.INDICES]))),
        weight_bytes=sum(table.weight_bytes for table in tables),
        whole_bytes=sum(table.weight_bytes + table.state_bytes for table in tables),
        held_bytes=float(most[Load.MEMORY]),
        busy_ratio=plan.imbalance,
    )


def _list_exchanges(name: str, most: Any, scattered: float, of_rows: str) -> tuple[TableExchange, ...]:
    return _drop_empty(
        TableExchange(name, "all_to_all", float(most[Load.SENT])),
        TableExchange(f"{name} of rows", of_rows, float(scattered)),
        TableExchange(f"{name} of rows in a node", of_rows, float(most[Load.NODE]), ExchangeGroup.NODE),
        TableExchange(f"{name} of rows between nodes", "all_to_all", float(most[Load.RAIL]), ExchangeGroup.RAIL),
    )


def _drop_empty(*exchanges: TableExchange) -> tuple[TableExchange, ...]:
    return tuple(one for one in exchanges if one.buffer_bytes >= 1)


class _Parameter(msgspec.Struct):
    """A table of torchrec's plan."""

    sharding_type: str
    compute_kernel: str
    ranks: list[Annotated[int, Meta(ge=0, le=MAX_RANKS)]] | None = None


def evaluate_plan_file(path: Path, tables: Sequence[PlannedTable], setting: ShardingSetting) -> ShardingPlan:
    """Evaluate the plan of a file in torchrec's form.

    Raises:
        ShardingError: It can't be read, or is no plan of these tables on this cluster.
    """
    given = _read_plan(path)
    chosen = [_find_option(path, table, given, setting) for table in tables]
    candidates = price_options(tables, [[option] for option, _ in chosen], setting)
    assignment = Assignment(candidates, Exchange(setting))
    for number, (_, ranks) in enumerate(chosen):
        assignment.put(number, 0, ranks)
    return evaluate_assignment(path.name, tables, assignment)


def _read_plan(path: Path) -> Mapping[str, _Parameter]:
    try:
        text = read_regular_file(path, MAX_MODEL_CONFIG_BYTES)
        modules = msgspec.json.decode(text, type=dict[str, dict[str, _Parameter]])
    except (OSError, ValueError, RecursionError) as error:
        reason = describe_failure(error).rstrip(".")
        raise ShardingError(messages.PLAN_UNREADABLE(path=str(path), reason=reason)) from error
    return {name: one for parameters in modules.values() for name, one in parameters.items()}


def _find_option(
    path: Path, table: PlannedTable, plan: Mapping[str, _Parameter], setting: ShardingSetting
) -> tuple[TableOption, Ints]:
    """Find the way to shard a table that a plan says, and its ranks."""
    if table.name not in plan:
        raise ShardingError(messages.PLAN_WITHOUT_TABLE(path=str(path), table=table.name))
    given = plan[table.name]
    ranks = given.ranks if given.ranks is not None else [*range(setting.ranks)]
    try:
        kind, kernel = ShardingType(given.sharding_type), ComputeKernel(given.compute_kernel)
    except ValueError as error:
        raise ShardingError(messages.PLAN_UNREADABLE(path=str(path), reason=f"{table.name}: {error}")) from error
    wanted, known = _count_parts(TableOption(kind, kernel), len(ranks), setting), list_options(table, setting)
    is_known = wanted in known or (wanted.parts > 0 and table.rows >= len(ranks))
    if not is_known or not _are_possible(wanted, ranks, setting):
        raise ShardingError(
            messages.PLAN_IMPOSSIBLE(
                path=str(path),
                table=table.name,
                way=wanted.label,
                ranks=setting.ranks,
                known=[option.label for option in known],
            )
        )
    return wanted, np.sort(np.array(ranks, dtype=np.int64))


def _count_parts(option: TableOption, ranks: int, setting: ShardingSetting) -> TableOption:
    """Return a way to shard a table with the columns, or the parts of its rows, that so many ranks hold."""
    shares = ranks // option.count_row_shards(setting)
    if option.type in (ShardingType.COLUMN_WISE, ShardingType.GRID):
        return replace(option, columns=max(shares, 1))
    if option.type is ShardingType.TABLE_ROW_WISE and shares > 1:
        return replace(option, parts=shares)
    return replace(option, parts=ranks) if option.type is ShardingType.ROW_WISE and ranks < setting.ranks else option


def _are_possible(option: TableOption, ranks: Sequence[int], setting: ShardingSetting) -> bool:
    """Return whether a plan's ranks can hold the shards of a table, whole nodes where a node splits its rows."""
    if len(set(ranks)) != option.count_shards(setting) or max(ranks) >= setting.ranks:
        return False
    nodes = {rank // setting.ranks_per_node for rank in ranks}
    return not option.is_split_in_nodes or len(nodes) * setting.ranks_per_node == len(set(ranks))
