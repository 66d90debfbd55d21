"""Insert the collectives of FSDP into a program of one data-parallel rank.

As PyTorch's ``fully_shard`` with each repeated layer as a unit, and the rest as another (Zhao et al., PyTorch FSDP:
Experiences on Scaling Fully Sharded Data Parallel, VLDB 2023): a layer's parameters are all-gathered before its forward
pass and again before its backward pass, at most two layers ahead of the GPU; its gradients are reduce-scattered after
its backward pass, that of each micro-batch: gradients stay sharded. The rest is gathered once a pass. All collectives
run on one stream, in order. With expert parallelism, the experts of a layer are a unit of their own, sharded over the
replicas of the same experts, as in torchtitan.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.build import DEFAULT_LAG_NS
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.edit import insert_activities, insert_edges
from tracekit.graph.nodes import NONE
from tracekit.graph.semantics import DEFAULT_GAP_NS
from tracekit.messages import Message, layouts
from tracekit.messages import layouts as told
from tracekit.parallelism.ddp_buckets import require_gradients
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.expert_parallel import count_expert_parameters, find_experts
from tracekit.parallelism.inserted import (
    NO_NODE,
    Insertion,
    add_host_time,
    append_kernels,
    build_collective_columns,
    find_stream_neighbours,
)
from tracekit.parallelism.layers import RepeatedLayers, find_repeated_layers
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.process_groups import DP_GROUP, EXPERT_DP_GROUP, infer_group_roles
from tracekit.parallelism.stragglers import HOST_SPEED_PCT
from tracekit.program import Program
from tracekit.workload.module_paths import BACKWARD
from tracekit.workload.signature import ITEM_BYTES, Tensor

BUFFER_COPY_OP = "fsdp::copy"
"""Op name of copies of a unit into or out of its buffer."""

EXPERT_BUFFER_COPY_OP = "fsdp::copy_experts"
"""Op name of copies of an expert-parallel unit's buffer."""

ParameterFilter = Callable[[Tensor], bool]
"""Selects parameters, such as experts'."""


@dataclass(frozen=True, slots=True)
class FsdpUnits:
    """The units' sizes, in bytes of the type that is reduce-scattered.

    Attributes:
        layer_bytes: One layer, without its experts where replicas split these.
        expert_bytes: Experts of one layer where replicas split them.
        rest_bytes: Everything outside the layers.
        largest_rest_bytes: Largest parameter of the rest, likely the embedding.
        scatter_dtype: Type of most reduce-scattered bytes.
        gather_dtype: Type that is all-gathered.
        frozen_layer_bytes: Parameters of one layer without gradients, where adapters are trained beside them.
        frozen_rest_bytes: The same of everything outside the layers.
        frozen_expert_bytes: The same of the experts of one layer where replicas split them.
    """

    layer_bytes: int
    expert_bytes: int
    rest_bytes: int
    largest_rest_bytes: int
    scatter_dtype: str
    gather_dtype: str
    frozen_layer_bytes: int = 0
    frozen_rest_bytes: int = 0
    frozen_expert_bytes: int = 0

    @property
    def gathered_layer_bytes(self) -> int:
        """What is gathered of one layer, without experts that replicas split."""
        return self.layer_bytes + self.frozen_layer_bytes

    @property
    def gathered_expert_bytes(self) -> int:
        """What is gathered of one layer's experts where replicas split them."""
        return self.expert_bytes + self.frozen_expert_bytes

    @property
    def gathered_rest_bytes(self) -> int:
        """What is gathered of everything outside the layers."""
        return self.rest_bytes + self.frozen_rest_bytes

    @property
    def item_bytes(self) -> int:
        """Bytes per element of ``scatter_dtype``."""
        return ITEM_BYTES.get(self.scatter_dtype, 4)


def list_fsdp_collectives(program: Program) -> pl.DataFrame:
    """List the recorded FSDP collectives: rows of the kernel table with their ``row``."""
    rows = infer_group_roles(program).filter(pl.col("role") == "dp").select("row", "put_in")
    collective = pl.col("collective").is_in(["all_gather", "reduce_scatter"])
    return program.kernels.with_row_index("row").join(rows, on="row").filter(collective & ~pl.col("put_in"))


def find_fsdp_units(program: Program, layers: RepeatedLayers, is_expert: ParameterFilter | None = None) -> FsdpUnits:
    """Find the units of a job.

    Parameters of a shape that occurs as often as there are layers, or a multiple of that, belong to the layers. In a
    job that uses FSDP, the same holds for the reduce-scatters of a step's last backward pass.

    Example with 12 layers: a shape that occurs 25 times is in each layer twice; one of the 25 belongs to the rest.

    Args:
        program: The program.
        layers: Its layers.
        is_expert: Selects the parameters of experts that replicas split; None where they don't.

    Raises:
        LayoutError: The parameters are unknown, or none of them belongs to the layers.
    """
    recorded = list_fsdp_collectives(program)
    scatters = recorded.filter(pl.col("collective") == "reduce_scatter")
    table = _list_accumulated(program, is_expert) if scatters.is_empty() else _list_scattered(program, layers, scatters)
    number = pl.len() // layers.count
    by_shape = table.group_by("shape", "dtype", "apart").agg(
        pl.first("bytes"), count=number, outside=pl.len() > number * layers.count
    )
    layer, experts = (
        int(by_shape.filter(of).select((pl.col("bytes") * pl.col("count")).sum()).item())
        for of in (~pl.col("apart"), pl.col("apart"))
    )
    if not layer:
        raise LayoutError(layouts.PARAMETERS_OUTSIDE_LAYERS(layers=layers.count))
    if by_shape.filter(pl.col("apart") & pl.col("outside")).height:
        raise LayoutError(layouts.EXPERTS_OUTSIDE_LAYERS(layers=layers.count))
    dtype = table.group_by("dtype").agg(pl.col("bytes").sum()).sort("bytes", "dtype")["dtype"][-1]
    largest = by_shape.select(pl.col("bytes").filter("outside").max().fill_null(0)).item()
    gathers = recorded.filter(pl.col("collective") == "all_gather")["dtype"].drop_nulls().mode().sort()
    rest = int(table["bytes"].sum()) - (layer + experts) * layers.count
    units = FsdpUnits(layer, experts, rest, int(largest), dtype, gathers[0] if gathers.len() else dtype)
    return _add_frozen(program, layers, units, splits_experts=is_expert is not None)


def _add_frozen(program: Program, layers: RepeatedLayers, units: FsdpUnits, *, splits_experts: bool) -> FsdpUnits:
    """Add the frozen parameters beside trained adapters, which are gathered and have no gradients.

    Raises:
        LayoutError: How many of them belong to the layers is unknown.
    """
    facts = program.trace.capture_facts
    if facts is None or not facts.frozen_bytes:
        return units
    if facts.layers is None or len(facts.layers.order) != layers.count or units.expert_bytes:
        raise LayoutError(layouts.ADAPTERS_SPLIT())
    frozen = sum(facts.layers.parameter_bytes) // layers.count - units.layer_bytes
    ends = facts.frozen_bytes - frozen * layers.count
    experts = int(count_expert_parameters(program) * facts.parameter_bytes / facts.parameters) if splits_experts else 0
    return replace(
        units,
        frozen_layer_bytes=frozen - experts,
        frozen_expert_bytes=experts,
        frozen_rest_bytes=ends,
        largest_rest_bytes=min(facts.layers.first_parameter_bytes, ends),
    )


def _list_accumulated(program: Program, is_expert: ParameterFilter | None) -> pl.DataFrame:
    """List the gradients of one backward pass: ``shape``, ``bytes``, ``dtype``; ``apart`` if an expert's."""
    each = [
        (
            str(one.shape),
            one.numel * one.get_item_bytes(4),
            one.dtype or "fp32",
            is_expert is not None and is_expert(one),
        )
        for one in require_gradients(program)
    ]
    return pl.DataFrame(each, schema=["shape", "bytes", "dtype", "apart"], orient="row")


def _list_scattered(program: Program, layers: RepeatedLayers, scatters: pl.DataFrame) -> pl.DataFrame:
    """List the reduce-scatters of the first step's last backward pass: ``shape``, ``bytes``, ``dtype``, ``apart``."""
    last = int(np.append(layers.is_first_pass[1:], True).argmax())
    row = int(layers.kernels["row"][int(layers.passes[last, 1])])
    of_pass = (pl.col("step") == program.kernels["step"][row]) & (pl.col("ts_ns") >= program.kernels["ts_ns"][row])
    scattered = scatters.filter(of_pass).select("bytes", "dtype", shape=pl.col("bytes").cast(pl.String)).drop_nulls()
    return scattered.with_columns(apart=pl.lit(value=False))


def build_fsdp_rows(program: Program, calls: pl.DataFrame, units: FsdpUnits) -> pl.DataFrame:
    """Build kernel-table rows for collectives of units, then for their buffer copies.

    Args:
        program: The program.
        calls: One row each: ``collective``, ``bytes``, ``step``, ``at``, the activity beside which it is launched, and
            ``group``, the description of its process group.
        units: The units.
    """
    nodes = program.graph.nodes
    ran = program.kernels.select("device", "stream")[calls["at"] - nodes.n_host]
    table = calls.with_columns(device=ran["device"], ts_ns=nodes.origin_ns + nodes.start_ns[calls["at"].to_numpy()])
    own = "step", "device", "ts_ns"
    moved = table.select(
        *own, "collective", "bytes", **build_collective_columns(program, pl.col("group")), name="collective",
        dtype=pl.lit(units.scatter_dtype),
    )  # fmt: skip
    of_experts = pl.col("group") == EXPERT_DP_GROUP
    copied = table.select(
        *own, bytes=2 * pl.col("bytes"), cols=pl.col("bytes") // units.item_bytes, rows=1, flops=0,
        dtype=pl.lit(units.scatter_dtype), stream=ran["stream"], family=pl.lit("copy"),
        name=pl.lit("copy of a shard's buffer"),
        op=pl.when(of_experts).then(pl.lit(EXPERT_BUFFER_COPY_OP)).otherwise(pl.lit(BUFFER_COPY_OP)),
    )  # fmt: skip
    return pl.concat([moved, copied], how="diagonal_relaxed").with_columns(phase=pl.lit(BACKWARD))


GATHER_AHEAD_LAYERS = 2
"""Number of layers that may be gathered before the GPU has finished the layer in front of them."""


def insert_fsdp_collectives(program: Program) -> Insertion:
    """Insert the all-gathers and reduce-scatters that FSDP would issue.

    Layers 1 to 3; AG is an all-gather, RS a reduce-scatter, "o" a copy out of a gathered buffer, "i" a copy into one::

        forward
          new stream     | AG rest | AG 1 | AG 2 |     | AG 3 |
          compute stream           | o rest | o 1 | fwd 1 | o 2 | fwd 2 | o 3 | fwd 3 |
        backward
          new stream     | AG 3 | AG 2 |        | RS 3 | AG 1 |      | RS 2 |       | RS 1 | RS rest |
          compute stream        | o 3 | bwd 3 | i 3 | o 2 | bwd 2 | i 2 | o 1 | bwd 1 | i 1 | i rest | optimizer

    A layer waits for its "o" copy, which waits for the layer's all-gather. An all-gather waits for the end of the layer
    two places before. A reduce-scatter waits for its "i" copy; the optimizer waits for the last one. The new stream
    runs its collectives in order. They take no time here, as they have one rank: ``relayout`` and ``collectives`` set
    their times.

    Args:
        program: The program.

    Raises:
        LayoutError: The layers or their parameters are unknown.
    """
    return _insert_collectives(program, None)


def insert_expert_fsdp_collectives(program: Program) -> Insertion:
    """Insert the collectives that FSDP would issue with expert parallelism.

    Experts are sharded over the replicas of the same experts only.

    Args:
        program: The program.

    Raises:
        LayoutError: The layers, their parameters or the experts are unknown.
    """
    return _insert_collectives(program, find_experts(program).is_expert_weight)


@dataclass(frozen=True, slots=True)
class InsertNarrowScatters:
    """Inserts FSDP's collectives with gradients cast for their reduce-scatters (MixedPrecisionPolicy.reduce_dtype).

    The copy into a buffer casts: it reads 4 bytes and writes 2. The cast back of a rank's shard isn't counted.

    Attributes:
        dtype: The type, of 2 bytes.
    """

    dtype: str

    def __call__(self, program: Program) -> Insertion:
        """Insert them.

        Raises:
            LayoutError: As :func:`insert_fsdp_collectives`, or no gradient is of fp32.
        """
        added = insert_fsdp_collectives(program)
        kernels, old = added.program.kernels, program.kernels.height
        calls = (kernels.height - old) // 2
        moved = kernels[old : old + calls]
        narrowed = ((moved["collective"] == "reduce_scatter") & (moved["dtype"] == "fp32")).to_numpy()
        if not narrowed.any():
            raise LayoutError(layouts.GRADIENTS_NARROW(dtypes=moved["dtype"].unique().sort().to_list()))
        part, is_narrow = np.ones(kernels.height), np.zeros(kernels.height, dtype=np.bool_)
        part[old : old + calls][narrowed], part[old + calls :][narrowed] = 1 / 2, 3 / 4
        is_narrow[old : old + calls] = narrowed
        changed = kernels.with_columns(
            bytes=(pl.col("bytes") * pl.Series(part)).cast(pl.Int64),
            dtype=pl.when(pl.Series(is_narrow)).then(pl.lit(self.dtype)).otherwise("dtype"),
        )
        note = told.FSDP_COMPRESSED(whole=added.note, dtype=self.dtype)
        return Insertion(added.program.replace_tables(kernels=changed), note)


def _insert_collectives(program: Program, is_expert: ParameterFilter | None) -> Insertion:
    layers = find_repeated_layers(program)
    units = find_fsdp_units(program, layers, is_expert)
    calls = _split_expert_units(_list_collectives(program, layers, units), units)
    copy_ns = estimate_copy_launch_ns(program)
    graph = _extend_graph(program.graph, calls, copy_ns)
    return Insertion(
        append_kernels(program, build_fsdp_rows(program, calls, units), graph), _write_note(layers, units, copy_ns)
    )


def _list_collectives(program: Program, layers: RepeatedLayers, units: FsdpUnits) -> pl.DataFrame:
    """List the collectives in the order of their stream; activities are graph nodes, ``NO_NODE`` if there is none.

    Columns: ``collective``; ``bytes``, null for a layer; ``at``, the activity whose launch the collective's launch
    precedes (all-gather) or follows (reduce-scatter); ``behind``, the activity that it waits for; ``before``, the
    activity that waits for it; ``step``.
    """
    node = program.graph.nodes.n_host + layers.kernels["row"].to_numpy().astype(np.int64)
    steps = layers.kernels["step"].to_numpy()
    follows = find_stream_neighbours(program.graph)[0]
    parts = []
    for (begin, turn, end), ahead, back in zip(
        layers.passes.tolist(), layers.forward_starts, layers.backward_starts, strict=True
    ):
        forward, backward = node[begin + ahead[:-1]], node[turn + back[:-1]]
        passed, returned = node[begin + ahead[1:] - 1], node[turn + back[1:] - 1]
        gathers = _build_gathers(backward, np.append(backward[0], backward[:-1]), returned)
        scatters = _build_rows("reduce_scatter", returned, returned, np.full(layers.count, NO_NODE))
        # The all-gather of the next layer is launched before this layer's gradients exist.
        number = pl.int_range(pl.len())
        turns = [gathers.with_columns(turn=2 * number), scatters.with_columns(turn=2 * number + 3)]
        rest = _build_rows("reduce_scatter", node[[end - 1]], node[[end - 1]], np.array([NO_NODE]), units.rest_bytes)
        whole = pl.concat(
            [
                _build_gathers(node[[begin]], node[[begin]], np.array([NO_NODE]), units.gathered_rest_bytes),
                _build_gathers(forward, forward, passed),
                pl.concat(turns).sort("turn").drop("turn"),
                rest,
            ]
        ).filter(pl.col("bytes").fill_null(1) > 0)
        ending = pl.int_range(pl.len()) == pl.len() - 1
        then = pl.when(ending & (pl.col("collective") == "reduce_scatter")).then(int(follows[node[end - 1]]))
        parts.append(whole.with_columns(before=then.otherwise("before"), step=pl.lit(int(steps[begin]))))
    return pl.concat(parts)


def _split_expert_units(calls: pl.DataFrame, units: FsdpUnits) -> pl.DataFrame:
    """Split a layer's collective into one of its experts and one of all else; fill ``bytes`` and ``group``."""
    scattered, gathered = (
        pl.lit(sizes, pl.List(pl.Int64))
        for sizes in (
            [units.layer_bytes, units.expert_bytes],
            [units.gathered_layer_bytes, units.gathered_expert_bytes],
        )
    )
    of_both = pl.when(pl.col("collective") == "all_gather").then(gathered).otherwise(scattered)
    sizes = [of_both, pl.concat_list("bytes")]
    names = [pl.lit([DP_GROUP, EXPERT_DP_GROUP]), pl.lit([DP_GROUP])]
    of_layer = pl.col("bytes").is_null()
    bytes_, group = (pl.when(of_layer).then(both).otherwise(whole) for both, whole in (sizes, names))
    return calls.with_columns(bytes=bytes_, group=group).explode("bytes", "group").filter(pl.col("bytes") > 0)


def _build_gathers(first_kernels: Ints, at: Ints, done: Ints, size: int | None = None) -> pl.DataFrame:
    """Build the all-gathers of layers.

    Each waits for the end of the layer that lies ``GATHER_AHEAD_LAYERS`` before its own.
    """
    behind = np.concatenate([np.full(GATHER_AHEAD_LAYERS, NO_NODE), done])[: first_kernels.size]
    return _build_rows("all_gather", at, behind, first_kernels, size)


def _build_rows(collective: str, at: Ints, behind: Ints, before: Ints, size: int | None = None) -> pl.DataFrame:
    nodes = pl.DataFrame({"at": at, "behind": behind, "before": before})
    return nodes.select(
        pl.lit(collective).alias("collective"), pl.lit(size, pl.Int64).alias("bytes"), "at", "behind", "before"
    )


def _extend_graph(graph: Graph, calls: pl.DataFrame, copy_ns: int) -> Graph:
    """Extend the graph by the collectives and their buffer copies, and by the edges on which they wait.

    See :func:`insert_fsdp_collectives` for the timeline.
    """
    nodes = graph.nodes
    gathers = (calls["collective"] == "all_gather").to_numpy()
    at, behind, before = (calls[name].to_numpy() for name in ("at", "behind", "before"))
    call, needed_call = nodes.launcher[at - nodes.n_host], nodes.launcher[np.where(gathers, before, at) - nodes.n_host]
    if (call == NONE).any() or (needed_call == NONE).any():
        raise LayoutError(layouts.LAYERS_NOT_LAUNCHED())
    host_ns = copy_ns + estimate_collective_launch_ns(copy_ns)
    lane = np.concatenate([np.full(calls.height, nodes.lane.max() + 1), nodes.lane[at]])
    moved = nodes.start_ns.size + np.arange(calls.height)
    copied = moved + calls.height
    grown = insert_activities(
        add_host_time(graph, call[gathers], call[~gathers], host_ns), lane, np.tile(nodes.start_ns[at], 2)
    )
    follows, precedes = find_stream_neighbours(graph)
    scatters = ~gathers
    previous, following = np.where(gathers, precedes[before], at), np.where(gathers, before, follows[at])
    launch = np.where(gathers, to_start_vertices(call), to_end_vertices(call))
    # Copies between the same two kernels run one after the other, those for reduce-scatters first.
    order = np.lexsort((gathers, following, previous))
    same = (np.diff(previous[order]) == 0) & (np.diff(following[order]) == 0)
    program = [
        (launch, to_start_vertices(moved), np.where(gathers, 0, host_ns)),
        (
            np.where(gathers, to_start_vertices(needed_call), launch),
            to_start_vertices(copied),
            np.where(gathers, 0, copy_ns),
        ),
    ]
    awaited, awaiting = gathers & (behind != NO_NODE), scatters & (before != NO_NODE)
    event = [
        (to_end_vertices(behind)[awaited], to_start_vertices(moved)[awaited]),
        (
            np.where(gathers, to_end_vertices(moved), to_end_vertices(copied)),
            np.where(gathers, to_start_vertices(copied), to_start_vertices(moved)),
        ),
        (to_end_vertices(moved)[awaiting], to_start_vertices(before)[awaiting]),
    ]
    stream = [
        (to_end_vertices(moved)[:-1], to_start_vertices(moved)[1:]),
        (to_end_vertices(previous)[previous != NO_NODE], to_start_vertices(copied)[previous != NO_NODE]),
        (to_end_vertices(copied)[following != NO_NODE], to_start_vertices(following)[following != NO_NODE]),
        (to_end_vertices(copied)[order[:-1][same]], to_start_vertices(copied)[order[1:][same]]),
    ]
    return insert_edges(
        grown,
        *(Edges(EdgeKind.PROGRAM, src, dst, lag_ns) for src, dst, lag_ns in program),
        *(Edges(EdgeKind.STREAM, src, dst, np.full(src.size, DEFAULT_GAP_NS)) for src, dst in stream),
        *(Edges(EdgeKind.EVENT, src, dst, np.full(src.size, DEFAULT_LAG_NS)) for src, dst in event),
    )


def _write_note(layers: RepeatedLayers, units: FsdpUnits, copy_ns: int) -> Message:
    note = told.FSDP_INSERTED(
        layers=layers.count,
        layer_bytes=units.layer_bytes,
        dtype=units.scatter_dtype,
        rest_bytes=units.rest_bytes,
        layers_ahead=GATHER_AHEAD_LAYERS,
        launch_us=(copy_ns + estimate_collective_launch_ns(copy_ns)) / 1e3,
        host_pct=HOST_SPEED_PCT,
    )
    if units.frozen_layer_bytes:
        frozen = units.frozen_layer_bytes, units.frozen_rest_bytes
        note = told.FSDP_FROZEN(whole=note, layer_bytes=frozen[0], rest_bytes=frozen[1])
    experts = units.gathered_expert_bytes
    return told.FSDP_EXPERTS_APART(whole=note, expert_bytes=experts) if experts else note
