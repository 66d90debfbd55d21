"""Insert a recommender's sharded embedding tables: a rank's own look-ups and updates, and what ranks exchange.

A program of one rank looks its samples up in all tables. Of sharded tables a rank looks up the samples of all ranks in
its shards, sends each rank the sums of its samples, and gets the gradients of its shards' sums back::

    compute stream | look-up |      | bottom MLP | interaction, MLPs | ... backward |           | updates | optimizer
    new stream               | sums              |                                  | gradients |
                   | next batch's indices   |

The bottom MLP hides the exchange of the sums, the forward pass that of the next batch's indices, as in TorchRec's
pipeline and in HugeCTR; dense layers' gradients are all-reduced beside the updates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.build import DEFAULT_LAG_NS
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.edit import insert_activities, insert_edges
from tracekit.messages import Message, layouts
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.inserted import (
    NO_NODE,
    Insertion,
    add_host_time,
    append_kernels,
    build_collective_columns,
    find_launch_calls,
    find_stream_neighbours,
)
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.process_groups import DP_GROUP, EP_GROUP, EXPERT_DP_GROUP
from tracekit.parallelism.sharded_tables import ExchangeGroup, TableExchange, TableSharding
from tracekit.program import Program
from tracekit.workload.module_paths import BACKWARD, FORWARD
from tracekit.workload.ops.memory_traffic import Columns

TABLE_OPS = r"(?i)embedding_(?:no)?bag|fbgemm::(?:split|dense|bounds_check)|Split\w*Lookup"
"""Ops that look up rows of embedding tables or update them."""
ROW_OPS = r"^aten::index_(?:select|add_)$"
"""Ops that update rows where a program of a configuration has PyTorch's own look-ups."""
INTERACTION = r"(?i)\bcat|_cat|stack|bmm|concat"
"""Kernels and ops that combine the sums of tables with the dense features."""
GROUPS = {ExchangeGroup.ALL: DP_GROUP, ExchangeGroup.NODE: EP_GROUP, ExchangeGroup.RAIL: EXPERT_DP_GROUP}
"""Groups of exchanges: a node's ranks split tables as they would split experts."""
SHARDED_OP = "tracekit::sharded_tables"
"""Op of the look-ups and updates of a rank's shards."""


@dataclass(frozen=True)
class InsertTableExchange:
    """Inserts the work and exchanges of sharded tables in place of the look-ups of one rank.

    Attributes:
        layout: The layout, with its sharded tables.
    """

    layout: Layout

    def __call__(self, program: Program) -> Insertion:
        """Insert them.

        Raises:
            LayoutError: The program's look-ups aren't known.
        """
        sharding = self.layout.tables
        assert sharding is not None
        sites = _find_sites(program)
        chains = [
            _Chain(sites.lookups, None, (*sharding.lookups,), FORWARD, "look-up of sharded tables", "embedding"),
            _Chain(sites.lookups, sites.interactions, sharding.sums, FORWARD),
            _Chain(sites.lookups, None, sharding.indices, FORWARD, joins=False),
        ]
        if sites.updates.size:
            chains += [
                _Chain(sites.before_updates, sites.first_updates, sharding.gradients, BACKWARD),
                _Chain(sites.updates, None, (*sharding.updates,), BACKWARD, "update of sharded tables", "optimizer"),
                _Chain(sites.updates, None, sharding.reduced, BACKWARD),
            ]
        return Insertion(_insert_chains(_silence(program), chains, self.layout), _write_note(sharding))


def has_table_exchange(program: Program) -> bool:
    """Return whether sharded tables were inserted into a program."""
    return bool((program.kernels["op"] == SHARDED_OP).any())


def find_table_kernels(program: Program) -> pl.Series:
    """Find the kernels that look up rows of embedding tables, sort their indices or update them."""
    of_config = program.trace.capture_facts is not None and bool(program.trace.capture_facts.tables)
    pattern = f"{TABLE_OPS}|{ROW_OPS}" if of_config else TABLE_OPS
    return program.kernels.select(pl.col("op").str.contains(pattern).fill_null(value=False))["op"]


@dataclass(frozen=True, slots=True)
class _Sites:
    """Activities of each step, by number of the node.

    Attributes:
        lookups: The last look-up.
        interactions: The first kernel that reads the sums.
        before_updates: The last kernel before the updates; ``NO_NODE`` where nothing is.
        first_updates: The first update.
        updates: The last one.
    """

    lookups: Ints
    interactions: Ints
    before_updates: Ints
    first_updates: Ints
    updates: Ints


def _find_sites(program: Program) -> _Sites:
    nodes = program.graph.nodes
    kernels = program.kernels.with_row_index("row").with_columns(mine=find_table_kernels(program))
    mine = kernels.filter("mine").with_columns(updates=pl.col("phase") == BACKWARD)
    forward, backward = (
        mine.filter(pl.col("updates").fill_null(value=False) == kind).group_by("step", maintain_order=True).agg(
            first=pl.col("row").sort_by("ts_ns", "row").first(), last=pl.col("row").sort_by("ts_ns", "row").last()
        )
        for kind in (False, True)
    )  # fmt: skip
    if forward.is_empty():
        raise LayoutError(layouts.LOOKUPS_UNKNOWN())
    follows, precedes = find_stream_neighbours(program.graph)
    lookups, first, last = (
        rows.to_numpy().astype(np.int64) + nodes.n_host
        for rows in (forward["last"], backward["first"], backward["last"])
    )
    reads = pl.any_horizontal(pl.col("name", "op").str.contains(INTERACTION).fill_null(value=False))
    combining = kernels.filter(~pl.col("mine"), reads).sort("ts_ns", "row")
    ends = forward.select("step", "last").join(kernels.select("row", last_ns="ts_ns"), left_on="last", right_on="row")
    found = combining.join(ends, on="step").filter(pl.col("ts_ns") >= pl.col("last_ns"), pl.col("row") > pl.col("last"))
    of_step = dict(found.group_by("step", maintain_order=True).agg(pl.col("row").first()).iter_rows())
    chosen = [of_step.get(step, NO_NODE) for step in forward["step"]]
    pairs = zip(chosen, follows[lookups].tolist(), strict=True)
    reading = np.array([after if row == NO_NODE else row + nodes.n_host for row, after in pairs], dtype=np.int64)
    return _Sites(lookups, reading, precedes[first] if first.size else first, first, last)


def _silence(program: Program) -> Program:
    """Return the program without time for its own look-ups."""
    factor = np.where(find_table_kernels(program).to_numpy(), 0.0, program.kernel_factor)
    return replace(program, kernel_factor=factor)


@dataclass(frozen=True, slots=True)
class _Chain:
    """Kernels or collectives that follow one another.

    Attributes:
        behind: The activity of each step that the first follows; of chains behind the same one the later ones follow
            the earlier.
        before: The activity that waits for the last; None for the next on the stream.
        items: What they do.
        name: Of kernels.
        family: Of kernels.
        joins: Whether anything waits for them.
    """

    behind: Ints
    before: Ints | None
    items: Sequence[Columns] | Sequence[TableExchange]
    phase: str
    name: str = ""
    family: str = ""
    joins: bool = True


def _insert_chains(program: Program, chains: Sequence[_Chain], layout: Layout) -> Program:
    graph, stream = program.graph, int(program.kernels["stream"].max() or 0)  # type: ignore[arg-type]
    tails: dict[int, int] = {}
    rows: list[pl.DataFrame] = []
    for chain in chains:
        if chain.items:
            graph = _insert_chain(program, graph, chain, tails)
            rows.append(_build_rows(program, chain, layout, stream + 1))
    return append_kernels(program, pl.concat(rows, how="diagonal_relaxed"), graph)


def _insert_chain(program: Program, graph: Graph, chain: _Chain, tails: dict[int, int]) -> Graph:
    """Insert the activities of a chain, step by step in the order of its rows."""
    follows = find_stream_neighbours(program.graph)[0]
    count, steps = len(chain.items), chain.behind.size
    added = graph.nodes.start_ns.size + np.arange(count * steps).reshape(steps, count)
    starts = np.array([tails.get(node, node) for node in chain.behind.tolist()], dtype=np.int64)
    before = follows[chain.behind] if chain.before is None else chain.before
    call = find_launch_calls(program.graph, chain.behind[chain.behind != NO_NODE])
    launched = np.repeat(call[call != NO_NODE], count)
    of_kernel = estimate_copy_launch_ns(program)
    cost_ns = of_kernel if chain.name else estimate_collective_launch_ns(of_kernel)
    busy = add_host_time(graph, call[:0], launched, cost_ns)
    at_ns = np.repeat(graph.nodes.end_ns[np.maximum(chain.behind, 0)], count)
    own_lane = (
        graph.nodes.lane[np.maximum(chain.behind, 0)] if chain.name else np.full(steps, graph.nodes.lane.max() + 1)
    )
    grown = insert_activities(busy, np.repeat(own_lane, count), at_ns)
    pairs = [(starts[starts != NO_NODE], added[starts != NO_NODE, 0])]
    pairs += [(added[:, place], added[:, place + 1]) for place in range(count - 1)]
    if chain.joins:
        awaited = before != NO_NODE
        pairs.append((added[awaited, -1], before[awaited]))
        tails.update(zip(chain.behind.tolist(), added[:, -1].tolist(), strict=True))
    source, destination = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    lags = np.full(source.size, DEFAULT_LAG_NS)
    edges = Edges(EdgeKind.EVENT, to_end_vertices(source), to_start_vertices(destination), lags)
    return insert_edges(grown, edges)


def _build_rows(program: Program, chain: _Chain, layout: Layout, stream: int) -> pl.DataFrame:
    """Build the rows of a chain for the kernel table."""
    places = np.maximum(chain.behind - program.graph.nodes.n_host, 0)
    own = program.kernels[places].select("step", "ts_ns", "device", stream=pl.col("stream"))
    each = own[np.repeat(np.arange(own.height), len(chain.items))].with_columns(phase=pl.lit(chain.phase))
    parts = []
    for item in chain.items:
        if isinstance(item, TableExchange):
            part = {"name": item.name, "op": "c10d::" + item.collective, "collective": item.collective,
                    "group_description": GROUPS[item.group],
                    "bytes": round(compute_message_bytes(item, layout))}  # fmt: skip
        else:
            part = {"name": chain.name, "op": SHARDED_OP, "family": chain.family, "dtype": "fp32", **item}
        parts.append(part)
    described = pl.DataFrame(parts * own.height, infer_schema_length=None)
    rows = each.hstack(described)
    if chain.name:
        return rows
    common = build_collective_columns(program, pl.col("group_description"))
    return rows.with_columns(**common | {"stream": pl.lit(stream)}, dtype=pl.lit("fp32"))


def _write_note(sharding: TableSharding) -> Message:
    return layouts.TABLES_SHARDED(
        tables=sharding.tables, ways=sharding.ways, held_bytes=sharding.held_bytes, busy_ratio=sharding.busy_ratio
    )


def compute_message_bytes(exchange: TableExchange, layout: Layout) -> float:
    """Return an exchange's bytes as long as it has one rank: ``relayout_collectives`` counts a part for each rank."""
    if exchange.group is ExchangeGroup.RAIL:
        return exchange.buffer_bytes * layout.expert_parallel_replicas
    parts = exchange.collective in ("reduce_scatter", "all_gather") and not layout.sharded
    ranks, of_batch = (layout.ep, layout.batch) if exchange.group is ExchangeGroup.NODE else (layout.dp, 1.0)
    return exchange.buffer_bytes / (ranks if parts else 1) / of_batch
