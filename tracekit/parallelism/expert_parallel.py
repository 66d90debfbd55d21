"""Predict expert parallelism (EP): derive a rank's work once several ranks split the experts, and insert all-to-alls.

Expert parallelism as in Megatron-LM, DeepSpeed, torchtitan, and in serving engines whose ranks each process requests of
their own: each of ``n`` data-parallel ranks has an ``n``-th of the experts and receives the tokens that all ranks route
to them. So a rank processes as many tokens as before: more for each expert, with fewer weights to read.

Example with 8 experts and 1024 tokens for each of them, split over 4 ranks::

    GEMM        batch (experts)  m (tokens)  weights read
    one rank    8                1024        8 experts
    4 ranks     2                4096        2 experts

Before a layer's experts, each rank sends every token to the ranks of the experts that it is routed to, once for each,
and gets it back after the experts. In the backward pass the gradients go the same ways.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.messages import Message, layouts
from tracekit.messages import layouts as told
from tracekit.models.stacks import find_stack
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.gemm_sides import (
    choose_message_dtype,
    compute_item_bytes,
    compute_weight_bytes,
    is_expert_gemm,
)
from tracekit.parallelism.gradients import find_gradients
from tracekit.parallelism.inserted import (
    NO_NODE,
    Insertion,
    append_kernels,
    build_collective_columns,
    describe_host_cost,
    find_stream_neighbours,
    insert_in_stream,
)
from tracekit.parallelism.layout import Layout, LayoutError, adds_expert_parallelism
from tracekit.parallelism.process_groups import EP_GROUP
from tracekit.parallelism.unknown_work import MAX_UNKNOWN_PCT
from tracekit.program import Program
from tracekit.workload.module_paths import BACKWARD, FORWARD
from tracekit.workload.signature import Signature, Tensor
from tracekit.workload.step_kinds import compute_time_share

Shape = tuple[int, ...]
EXCHANGES = 2
"""All-to-alls of a layer's pass."""


@dataclass(frozen=True, slots=True)
class MoeExperts:
    """The experts of an MoE model.

    Attributes:
        experts_per_layer: Number of experts in a layer.
        hidden: Width of a token.
        weights: Rows and columns of an expert's weights, in either order.
        is_stacked: Whether the weights of a layer's experts are one tensor.
        gemms: The experts' GEMMs in order of launch: ``row`` in the kernel table, ``step``, ``device``, ``phase``,
            ``dtype``, ``ts_ns``, ``dur_ns``; ``layer``, a number for each pass through the experts of one layer; and
            ``pairs``, the token-expert pairs: a token counts once for each expert that it is routed to.
    """

    experts_per_layer: int
    hidden: int
    weights: frozenset[tuple[int, int]]
    is_stacked: bool
    gemms: pl.DataFrame

    def is_expert_weight(self, tensor: Tensor) -> bool:
        """Return whether a tensor is the weight of a layer's experts or of one of them."""
        many = (self.experts_per_layer,) if self.is_stacked else ()
        return tensor.shape[-2:] in self.weights and tensor.shape[:-2] == many


def find_experts(program: Program) -> MoeExperts:
    """Find the experts of a traced job by their grouped GEMMs.

    Raises:
        LayoutError: There are none, or their work is unknown.
    """
    kernels = program.kernels
    unknown = (pl.col("family") == "moe") & pl.col("work_from").is_null()
    if (part := compute_time_share(kernels, "dur_ns", unknown)) > MAX_UNKNOWN_PCT:
        raise LayoutError(layouts.EXPERT_WORK_UNKNOWN(time_pct=part))
    order = kernels.with_row_index("row").filter(pl.col("family").is_in(["gemm", "attention"]))
    in_turn = order.sort("device", "ts_ns", "row").with_columns(mine=is_expert_gemm())
    found = in_turn.with_columns(visit=pl.struct("mine", "device", "phase").rle_id()).filter("mine")
    forward = found.filter(pl.col("phase") == FORWARD)
    if forward.is_empty():
        raise LayoutError(layouts.NO_GROUPED_EXPERTS())
    first, last = forward.row(0, named=True), forward.filter(pl.col("visit") == forward["visit"][0]).row(-1, named=True)
    if first["k"] != last["n"]:
        raise LayoutError(layouts.EXPERT_WIDTHS_DIFFER(read=first["k"], written=last["n"]))
    weights = frozenset(pair for n, k in forward.select("n", "k").iter_rows() for pair in ((n, k), (k, n)))
    shapes = [_parse_shapes(dims) for dims in forward["input_dims"].drop_nulls().unique()]
    number = max([*found["batch"], *map(_infer_expert_count, shapes)])
    stacked = any(len(shape) == 3 and shape[0] == number for inputs in shapes for shape in inputs)
    tokens = pl.when(_is_weight_gradient(weights)).then("k").otherwise("m")
    told = found.with_columns(layer=_number_layer_passes(forward), pairs=pl.col("batch") * tokens)
    columns = ("row", "step", "device", "phase", "dtype", "ts_ns", "dur_ns", "layer", "pairs")
    return MoeExperts(number, first["k"], weights, stacked, told.select(columns))


def _parse_shapes(dims: str) -> list[Shape]:
    return [tensor.shape for tensor in Signature.parse("", dims, None, None).tensors]


def _infer_expert_count(shapes: Sequence[Shape]) -> int:
    """Infer the number of experts from an op's inputs: stacked weights, or one score per expert; 0 if unknown."""
    stacked = [shape[0] for shape in shapes[1:] if len(shape) == 3]
    scored = len(shapes) == 2 and len(shapes[0]) == len(shapes[1]) == 2 and shapes[0][0] == shapes[1][0]
    return stacked[0] if stacked else shapes[1][1] if scored else 0


def _number_layer_passes(forward: pl.DataFrame) -> pl.Expr:
    """Number the passes through the experts of one layer.

    Where the backward pass recomputes a layer's forward pass, that is a pass of its own.
    """
    each = forward.group_by("visit").len()["len"].mode().min()
    place, count = pl.int_range(pl.len()).over("visit"), pl.len().over("visit")
    again = (pl.col("phase") == BACKWARD) & (place < count - 2 * pl.lit(each))
    return pl.struct("visit", again).rle_id()


def _is_weight_gradient(weights: frozenset[tuple[int, int]]) -> pl.Expr:
    """Select GEMMs that compute gradients of weights, whose k dimension is tokens."""
    known = [rows * 2**32 + cols for rows, cols in weights]
    sides = pl.col("m") * 2**32 + pl.col("n"), pl.col("n") * 2**32 + pl.col("k")
    of_weight, of_input = (side.is_in(known) for side in sides)
    return (pl.col("phase") == BACKWARD) & of_weight & ~of_input


def count_expert_parameters(program: Program) -> int:
    """Count the parameters of one layer's experts, without biases."""
    experts = find_experts(program)
    first = experts.gemms.filter((pl.col("phase") == FORWARD) & (pl.col("layer") == pl.col("layer").first()))
    rows = program.kernels[first["row"]]
    return experts.experts_per_layer * int(rows.select((pl.col("n") * pl.col("k")).sum()).item())


def compute_expert_parameter_fraction(program: Program) -> float:
    """Return the fraction of a job's parameters in its experts; 0 where the parameters are unknown."""
    experts, found = find_experts(program), find_gradients(program) or []
    every = sum(one.numel for one in found)
    return sum(one.numel for one in found if experts.is_expert_weight(one)) / every if every else 0.0


def compute_held_parameter_fraction(program: Program, layouts: tuple[Layout, Layout] | None) -> float:
    """Return the fraction of its parameters that a rank holds once replicas split the experts, apart from FSDP.

    With FSDP it is 1: experts are sharded over the replicas of the same experts, all else over all replicas, so the
    fraction of each that a rank holds is the same.

    Args:
        program: The program.
        layouts: Layouts of the trace and on the target; None where the layout stays.
    """
    if layouts is None or not adds_expert_parallelism(*layouts) or layouts[1].sharded:
        return 1.0
    part = compute_expert_parameter_fraction(program)
    return 1 - part + part / layouts[1].expert_parallel_replicas


def split_experts(
    kernels: pl.DataFrame, experts: MoeExperts, expert_fraction: float, ranks: int, tp: int = 1
) -> pl.DataFrame:
    """Return the kernel table of one of the ``ranks`` that split the experts.

    Args:
        kernels: The kernel table.
        experts: Its experts.
        expert_fraction: Fraction of the parameters in experts.
        ranks: Ranks that split the experts.
        tp: Tensor-parallel ranks of each, among whom the table already has them split.

    Returns:
        The table with other dimensions where they change, and ``changed``, whether they did.

    Raises:
        LayoutError: The number of experts can't be divided by ``ranks``.
    """
    if experts.experts_per_layer % (ranks * tp):
        raise LayoutError(layouts.EXPERTS_INDIVISIBLE(experts=experts.experts_per_layer, ranks=ranks * tp))
    table = kernels.with_row_index("number")
    gemm = pl.col("number").is_in(experts.gemms["row"].implode())
    of_weight = _is_weight_gradient(experts.weights)
    pairs = pl.col("batch") * pl.when(of_weight).then("k").otherwise("m")
    batch = pl.min_horizontal(pl.lit(experts.experts_per_layer // (ranks * tp)), pairs)
    side = (pairs / batch).ceil()
    touched = {dims: _uses_expert_weights(experts, dims) for dims in table["input_dims"].drop_nulls().unique()}
    works = pl.col("input_dims").replace_strict(touched, default=False, return_dtype=pl.Boolean).fill_null(False)
    memory_bound = pl.col("rows").is_not_null() & works & (pl.col("family") != "optimizer")
    optimizer = pl.col("family") == "optimizer"
    kept = pl.when(optimizer).then(1 - expert_fraction + expert_fraction / ranks).otherwise(1 / ranks)
    vector = memory_bound | optimizer
    by_column = pl.col("rows") == 1
    edited = {
        "batch": pl.when(gemm).then(batch).otherwise("batch"),
        "m": pl.when(gemm & ~of_weight).then(side).otherwise("m"),
        "k": pl.when(gemm & of_weight).then(side).otherwise("k"),
        **{name: pl.when(vector & ~by_column).then(pl.col(name) * kept).otherwise(name) for name in ("rows", "blocks")},
        "cols": pl.when(vector & by_column).then(pl.col("cols") * kept).otherwise("cols"),
        "flops": pl.when(vector).then(pl.col("flops") * kept).otherwise("flops"),
        "bytes": pl.when(gemm)
        .then(pl.col("bytes") - compute_weight_bytes() * (1 - batch / pl.col("batch")))
        .when(vector)
        .then(pl.col("bytes") * kept)
        .otherwise("bytes"),
    }
    whole = {name: value.ceil().cast(pl.Int64) for name, value in edited.items()}
    return table.with_columns(**whole, changed=(gemm | vector).fill_null(False)).drop("number")


def _uses_expert_weights(experts: MoeExperts, dims: str) -> bool:
    """Return whether an op with such inputs works on experts' weights."""
    return any(experts.is_expert_weight(tensor) for tensor in Signature.parse("", dims, None, None).tensors)


def insert_expert_alltoalls(program: Program, *, ranks: int = 1, senders: int = 1) -> Insertion:
    """Insert the all-to-alls before and after the experts of each MoE layer.

    Forward and backward alike::

        compute stream | router |                     | expert GEMMs |                     | next kernel
        new stream              | all-to-all dispatch |              | all-to-all combine  |

    Nothing runs at the same time. The all-to-alls take no time here, as they have one rank: ``relayout`` and
    ``collectives`` set their times. A stack whose experts are launched one by one needs the host's time for that, too.

    Args:
        program: The program.
        ranks: Ranks that split the experts.
        senders: Tensor-parallel ranks that split a replica's tokens, each of which sends its own.

    Raises:
        LayoutError: The experts are unknown.
    """
    experts = find_experts(program)
    sent = _find_alltoall_sites(program, experts).with_columns(pairs=(pl.col("pairs") / senders).ceil().cast(pl.Int64))
    facts = program.trace.capture_facts
    launch_us = find_stack(facts.stack).expert_launch_us if facts else 0.0
    here = experts.experts_per_layer / ranks
    launch_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(program))
    cost_ns = (launch_ns + 1e3 * launch_us * here * sent["products"].to_numpy() / EXCHANGES).astype(np.int64)
    behind = sent["behind"].to_numpy().astype(np.int64)
    grown = append_kernels(
        program, _build_alltoall_rows(program, sent, experts), insert_in_stream(program.graph, behind, cost_ns)
    )
    return Insertion(
        grown, _write_alltoall_note(sent, experts, describe_host_cost(program.graph, behind, int(cost_ns.mean())))
    )


def _find_alltoall_sites(program: Program, experts: MoeExperts) -> pl.DataFrame:
    """Find the all-to-alls in order of launch.

    Beside what each moves they have the ``products`` of their layer, and ``behind``, the activity that they follow.
    """
    cpu = program.graph.nodes.n_host
    ends = experts.gemms.group_by("layer", maintain_order=True).agg(
        pl.first("step", "device", "phase", "dtype", "pairs"),
        products=pl.len(),
        ts_ns=pl.concat_list(pl.col("ts_ns").first(), (pl.col("ts_ns") + pl.col("dur_ns")).last()),
        at=pl.concat_list(pl.col("row").first(), pl.col("row").last()).cast(pl.List(pl.Int64)),
    )
    table = ends.with_columns(dispatches=pl.lit([True, False])).explode("ts_ns", "at", "dispatches")
    node = cpu + table["at"].to_numpy()
    dispatches = table["dispatches"].to_numpy()
    behind = np.where(dispatches, find_stream_neighbours(program.graph)[1][node], node)
    if (behind == NO_NODE).any():
        raise LayoutError(layouts.TRACE_BEGINS_WITH_EXPERTS())
    return table.with_columns(behind=pl.Series(behind))


def _build_alltoall_rows(program: Program, sent: pl.DataFrame, experts: MoeExperts) -> pl.DataFrame:
    """Build the kernel-table rows of the all-to-alls."""
    return sent.select(
        "step", "device", "phase", "ts_ns", bytes=pl.col("pairs") * experts.hidden * compute_item_bytes(),
        dtype=choose_message_dtype(), name=pl.lit("all-to-all"), op=pl.lit("c10d::alltoall_base_"),
        collective=pl.lit("all_to_all"), **build_collective_columns(program, EP_GROUP),
    )  # fmt: skip


def _write_alltoall_note(sent: pl.DataFrame, experts: MoeExperts, host: Message) -> Message:
    steps = max(sent["step"].drop_nulls().n_unique(), 1)
    size = sent.select((pl.col("pairs") * experts.hidden * compute_item_bytes()).sum()).item() / steps
    return told.EXPERT_PARALLEL_INSERTED(
        experts=experts.experts_per_layer, alltoalls=sent.height / steps, message_bytes=size, host_cost=host
    )
