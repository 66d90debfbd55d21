"""Predict tensor parallelism (TP): derive a rank's kernels for another number of ranks, and insert all-reduces.

Split are the GEMM dimensions that ``transformer_blocks`` infers, attention heads, and the tensors of either. Ranks of
the trace that have whole layers get the all-reduces of Megatron-LM (Shoeybi et al., 2019): in the forward pass one of
the output follows each block's second GEMM; in the backward pass one follows the gradients of a block's input. With
sequence parallelism (Korthikanti et al., 2022) each is a reduce-scatter there and an all-gather before the next block.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools
from tracekit.kept import keep_on_first
from tracekit.messages import Message, layouts
from tracekit.messages import layouts as told
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.expert_parallel import find_experts
from tracekit.parallelism.gemm_sides import (
    EXPERTS,
    GEMM_SIDES,
    HEADS,
    Activations,
    choose_message_dtype,
    compute_activation_bytes,
    compute_item_bytes,
    compute_weight_bytes,
    infer_activations_from_collectives,
    infer_activations_from_gemms,
    infer_split_sides,
    is_adapter_gemm,
    list_block_kernels,
)
from tracekit.parallelism.inserted import (
    NO_NODE,
    Insertion,
    append_kernels,
    build_collective_columns,
    describe_host_cost,
    find_stream_neighbours,
    insert_in_stream,
    name_exchanges,
)
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.process_groups import TP_GROUP, is_training
from tracekit.parallelism.shared_matrices import updates_matrices
from tracekit.parallelism.unknown_work import MAX_UNKNOWN_PCT, check_work_known
from tracekit.program import Program
from tracekit.workload.module_paths import BACKWARD, FORWARD
from tracekit.workload.step_kinds import compute_time_share

NCCL_ALLREDUCE_OP, ENGINE_ALLREDUCE_OP = "c10d::allreduce_", "_C_custom_ar::all_reduce"
"""Ops of all-reduces in training and in inference; ``collective_calls`` chooses the latency model by them."""


def split_layers(
    kernels: pl.DataFrame, calls: pl.DataFrame, before: int, after: int, sequence_parallel: bool = False
) -> pl.DataFrame:
    """Return the kernel table of each of ``after`` ranks, where ``before`` ranks split the layers.

    Example for a first MLP GEMM with ``before`` 1 and ``after`` 4: m x n x k of 4096 x 4096 x 1024 becomes
    4096 x 1024 x 1024.

    Args:
        kernels: The kernel table.
        calls: The collectives of tensor-parallel groups, as ``list_collectives`` returns them.
        before: Tensor-parallel ranks in the trace.
        after: Requested ranks.
        sequence_parallel: Whether they split the tokens between blocks.

    Returns:
        The table with other dimensions where they change, and ``changed``, whether they did.

    Raises:
        LayoutError: The split dimensions are unknown, or can't be divided by the number of ranks.
    """
    check_layers_known(kernels)
    activations = (
        infer_activations_from_gemms(kernels) if before == 1 else infer_activations_from_collectives(kernels, calls)
    )
    gemms = infer_split_sides(kernels, activations)
    table = kernels.with_columns(gemms["side"])
    changes = _find_changes(table, SplitTensors.from_kernels(table, gemms["size"], activations, sequence_parallel))
    _check_divisible(table, before, after)
    factor = before / after
    edited = {name: pl.when(mine).then(_scale_column(name, factor)).otherwise(name) for name, mine in changes.items()}
    sided = pl.col("side").is_in(["n", "k"]).fill_null(value=False)
    edited["bytes"] = pl.when(sided).then(_scale_gemm_bytes(factor)).otherwise(edited["bytes"])
    anything = pl.any_horizontal(*changes.values()).fill_null(False)
    return table.with_columns(**edited, kv_heads=_scale_column("kv_heads", factor), changed=anything).drop("side")


def check_layers_known(kernels: pl.DataFrame) -> None:
    """Refuse jobs whose layers have too much unknown work to be split; attention can always be split by heads.

    Args:
        kernels: The kernel table.

    Raises:
        LayoutError: Too much of their work is unknown.
    """
    kept = ["collective", "memcpy", "memset", "attention"]
    changing = kernels.filter(~pl.col("family").is_in(kept))
    check_work_known(changing, layouts.TENSOR_PARALLEL_WORK_UNKNOWN, layouts.TENSOR_PARALLEL_SHAPES_UNKNOWN)


@dataclass(frozen=True)
class SplitTensors:
    """Evidence that a tensor is split.

    Attributes:
        sizes: Split sizes of the last dimension.
        heads: Numbers of attention heads, one of the inner dimensions.
        matrix_counts: Numbers of matrices in batched GEMMs: the product of all dimensions but the last two.
        hidden: Number of columns of weights whose rows are in ``sizes``.
        tokens: Numbers of rows of activations that are split between blocks, too; empty without sequence parallelism.
    """

    sizes: frozenset[int]
    heads: frozenset[int]
    matrix_counts: frozenset[int]
    hidden: int
    tokens: frozenset[int] = frozenset()

    @classmethod
    def from_kernels(
        cls, table: pl.DataFrame, sizes: pl.Series, activations: Activations, sequence_parallel: bool = False
    ) -> "SplitTensors":
        """Collect the evidence from a kernel table and the split ``sizes`` of its GEMMs."""
        return cls(
            sizes=frozenset(sizes.drop_nulls()) - {activations.hidden},
            heads=frozenset(table["heads"].drop_nulls()),
            matrix_counts=frozenset(table.filter(side="batch")["batch"]),
            hidden=activations.hidden,
            tokens=activations.tokens if sequence_parallel else frozenset(),
        )

    def use_split_tensor(self, dims: str) -> bool:
        """Return whether an op with such inputs works on a split tensor."""
        shapes = [
            shape for shape in json.loads(dims) if isinstance(shape, list) and shape and isinstance(shape[0], int)
        ]
        return self.contain_any_shape(shapes)

    def contain_any_shape(self, shapes: Iterable[Sequence[int]]) -> bool:
        """Return whether one of some shapes, none of them empty, is that of a split tensor."""
        return any(self._contain_shape(shape) for shape in shapes if shape)

    def _contain_shape(self, shape: Sequence[int]) -> bool:
        weight = len(shape) == 2 and shape[0] in self.sizes and shape[1] == self.hidden
        of_heads = self.heads.intersection(shape[1:-1]) or math.prod(shape[:-2]) in self.matrix_counts
        between_blocks = shape[-1] == self.hidden and math.prod(shape[:-1]) in self.tokens
        return shape[-1] in self.sizes or weight or bool(of_heads) or between_blocks


def _find_changes(table: pl.DataFrame, split_tensors: SplitTensors) -> dict[str, pl.Expr]:
    """Find the rows that change, by column: GEMM dimensions, heads, and kernels on split tensors."""
    touched = {dims: split_tensors.use_split_tensor(dims) for dims in table["input_dims"].drop_nulls().unique()}
    works = pl.col("input_dims").replace_strict(touched, default=None, return_dtype=pl.Boolean)
    looks_up = pl.col("op").str.contains("embedding").fill_null(value=False) & pl.lit(bool(split_tensors.tokens))
    memory_bound = pl.col("rows").is_not_null() & works.fill_null(False) & ~looks_up
    memory_bound &= ~updates_matrices()
    memory_bound |= pl.col("family") == "optimizer"
    by_column = (pl.col("cols").is_in(list(split_tensors.sizes)) | (pl.col("rows") == 1)).fill_null(False)
    return {
        **{name: pl.col("side") == name for name in GEMM_SIDES},
        "batch": pl.col("side").is_in(["batch", EXPERTS]),
        "heads": pl.col("heads").is_not_null(),
        "mask_heads": (pl.col("mask_heads") > 1) & (pl.col("mask_heads") == pl.col("heads")),
        "rows": memory_bound & ~by_column,
        "blocks": memory_bound & ~by_column,
        "cols": memory_bound & by_column,
        "flops": memory_bound,
        "bytes": memory_bound | pl.col("side").is_in(["batch", EXPERTS]).fill_null(value=False),
    }


def _check_divisible(table: pl.DataFrame, before: int, after: int) -> None:
    """Refuse heads, or inputs of a block's second GEMM, that can't be divided; a vocabulary can be padded."""
    inner = (pl.col("side") == "k") & (pl.col("phase") == FORWARD)
    uneven = table.filter(inner & ((pl.col("k") * before) % after != 0) | ((pl.col("heads") * before) % after != 0))
    if uneven.height:
        row = uneven.row(0, named=True)
        op = row["op"] or "a kernel without an op"
        if row["heads"]:
            raise LayoutError(layouts.HEADS_INDIVISIBLE(op=op, heads=before * row["heads"], ranks=after))
        raise LayoutError(layouts.COLUMNS_INDIVISIBLE(op=op, columns=before * row["k"], ranks=after))


def _scale_gemm_bytes(factor: float) -> pl.Expr:
    """Scale ``bytes`` of GEMMs that have their own: weights, and the split side of the activations."""
    n, k = (pl.col(name) * pl.when(pl.col("side") == name).then(factor).otherwise(1.0) for name in ("n", "k"))
    return (compute_weight_bytes() * factor + compute_activation_bytes(n, k)).ceil().cast(pl.Int64)


def _scale_column(name: str, factor: float) -> pl.Expr:
    return (pl.col(name) * factor).round().cast(pl.Int64).clip(1)


def insert_layer_allreduces(program: Program) -> Insertion:
    """Insert the all-reduces that tensor-parallel ranks would issue.

    Forward; backward they follow the gradient of the first GEMM's input::

        compute stream | GEMM 1 (split n) | GEMM 2 (split k) |            | next kernel
        new stream                                           | all-reduce |

    Nothing of the layer runs at the same time. The all-reduces take no time here, as they have one rank: ``relayout``
    and ``collectives`` set their times.

    Args:
        program: The program.

    Raises:
        LayoutError: The blocks of the layers are unknown.
    """
    check_layers_known(program.kernels)
    behind = _find_allreduced_gemms(program.kernels)
    gemm = program.graph.nodes.n_host + behind["row"].to_numpy().astype(np.int64)
    cost_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(program))
    op = NCCL_ALLREDUCE_OP if is_training(program) else ENGINE_ALLREDUCE_OP
    rows = _build_exchange_rows(program, behind).with_columns(name=pl.lit("all-reduce"), op=pl.lit(op))
    grown = append_kernels(program, rows, insert_in_stream(program.graph, gemm, cost_ns))
    return Insertion(grown, _write_allreduce_note(behind, op, describe_host_cost(program.graph, gemm, cost_ns)))


def insert_sequence_exchanges(program: Program, *, experts_apart: bool = False) -> Insertion:
    """Insert the exchanges that tensor-parallel ranks with sequence parallelism would issue.

    A reduce-scatter and an all-gather replace each all-reduce; what lies between works on a part of the tokens::

        compute stream | GEMM 2 |                | add, norm |            | next block's GEMM 1
        new stream              | reduce-scatter |           | all-gather |

    Args:
        program: The program.
        experts_apart: Whether experts get their tokens from each rank by all-to-alls, so that their blocks begin and
            end with the rank's own.

    Raises:
        LayoutError: The blocks of the layers are unknown.
    """
    check_layers_known(program.kernels)
    found = _find_allreduced_gemms(program.kernels)
    hosts, before = program.graph.nodes.n_host, find_stream_neighbours(program.graph)[1]
    gemm = hosts + found["row"].to_numpy().astype(np.int64)
    following = found["next_row"].fill_null(NO_NODE).to_numpy().astype(np.int64)
    gathered = np.where(following == NO_NODE, gemm, before[hosts + following])
    behind = np.column_stack([gemm, np.where(gathered == NO_NODE, gemm, gathered)]).reshape(-1)
    cost_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(program))
    kinds = pl.DataFrame({"collective": ["reduce_scatter", "all_gather"]})
    rows = _build_exchange_rows(program, found).drop("collective").join(kinds, how="cross", maintain_order="left_right")
    if experts_apart:
        exchanged = find_exchanges_of_dense_blocks(found, find_experts(program).experts_per_layer)
        rows, behind = rows.filter(pl.Series(exchanged)), behind[exchanged]
    grown = append_kernels(
        program, rows.with_columns(**name_exchanges()), insert_in_stream(program.graph, behind, cost_ns)
    )
    steps = max(found["step"].drop_nulls().n_unique(), 1)
    note = told.SEQUENCE_PARALLEL_INSERTED(
        reduce_scatters=rows.filter(collective="reduce_scatter").height / steps,
        message_bytes=rows.select(pl.col("bytes").sum()).item() / steps,
        host_cost=describe_host_cost(program.graph, behind, cost_ns),
    )
    return Insertion(grown, note)


def find_exchanges_of_dense_blocks(found: pl.DataFrame, experts: int) -> Bools:
    """Return which reduce-scatters and all-gathers, by turns, end and begin blocks without experts or their router."""
    of_router = (pl.col("n") == experts) | (pl.col("k") == experts)
    apart = (pl.col("kind") == EXPERTS) | of_router
    following = pl.col("apart").shift(-1).over("device") & (pl.col("phase") == pl.col("phase").shift(-1).over("device"))
    marked = found.with_columns(apart=apart).with_columns(before=following.fill_null(value=False))
    return np.column_stack([~marked["apart"].to_numpy(), ~marked["before"].to_numpy()]).reshape(-1)


def trains_adapters(program: Program) -> bool:
    """Return whether a program trains adapters (LoRA)."""
    of_adapters = is_adapter_gemm() & (pl.col("phase") == BACKWARD)
    return bool(program.kernels.select(of_adapters.any()).item())


def insert_adapter_allreduce(program: Program) -> Insertion:
    """Insert the all-reduce of the adapters' gradients of which each tensor-parallel rank has a part.

    One follows a step's backward pass, as in Megatron-LM's ``finalize_model_grads`` for parameters that all ranks have
    whole. With its input split, the second layer of an adapter is such a one; with its output split, the first is::

        compute stream | backward |            | optimizer
        new stream                | all-reduce |

    Args:
        program: The program.

    Raises:
        LayoutError: The blocks of the layers are unknown.
    """
    activations = infer_activations_from_gemms(program.kernels)
    table = program.kernels.with_columns(infer_split_sides(program.kernels, activations)["side"]).with_row_index("row")
    backward = table.filter((pl.col("phase") == BACKWARD) & (pl.col("family") != "collective"))
    of_weight = is_adapter_gemm() & pl.col("side").is_null() & pl.col("k").is_in(list(activations.tokens))
    gradients = backward.filter(of_weight).unique(["step", "device", "module"], maintain_order=True)
    sizes = gradients.group_by("step", "device", maintain_order=True).agg(
        bytes=(pl.col("m") * pl.col("n") * compute_item_bytes()).sum(), dtype=choose_message_dtype().first()
    )
    ends = backward.sort("ts_ns").group_by("step", "device", maintain_order=True).agg(pl.last("row", "ts_ns"))
    rows = ends.join(sizes, on=["step", "device"], maintain_order="left")
    behind = program.graph.nodes.n_host + rows["row"].to_numpy().astype(np.int64)
    cost_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(program))
    added = rows.drop("row").with_columns(
        phase=pl.lit(BACKWARD), collective=pl.lit("all_reduce"), name=pl.lit("all-reduce"),
        op=pl.lit(NCCL_ALLREDUCE_OP), **build_collective_columns(program, TP_GROUP),
    )  # fmt: skip
    grown = append_kernels(program, added, insert_in_stream(program.graph, behind, cost_ns))
    size = float(rows["bytes"].sum()) / max(rows["step"].drop_nulls().n_unique(), 1)
    host_cost = describe_host_cost(program.graph, behind, cost_ns)
    return Insertion(grown, told.ADAPTERS_REDUCED(message_bytes=size, host_cost=host_cost))


@keep_on_first
def measure_gathered_bytes(program: Program) -> float:
    """Measure the inputs of blocks that a rank with sequence parallelism gathers in a step's forward pass.

    Args:
        program: The program.

    Raises:
        LayoutError: The blocks of the layers are unknown.
    """
    found = _find_allreduced_gemms(program.kernels).filter(pl.col("phase") != BACKWARD)
    steps = max(found["step"].drop_nulls().n_unique(), 1)
    return float(found.select((pl.col("elements") * compute_item_bytes()).sum()).item()) / steps


@keep_on_first
def measure_split_fraction(program: Program, sequence_parallel: bool = False) -> float:
    """Measure the fraction of a captured step's activations in tensors that tensor-parallel ranks split.

    Args:
        program: The program, whose capture tells its activations.
        sequence_parallel: Whether they split the tokens between blocks, too.

    Raises:
        LayoutError: How its layers are split is unknown.
    """
    facts = program.trace.capture_facts
    check_layers_known(program.kernels)
    activations = infer_activations_from_gemms(program.kernels)
    gemms = infer_split_sides(program.kernels, activations)
    table = program.kernels.with_columns(gemms["side"])
    tensors = SplitTensors.from_kernels(table, gemms["size"], activations, sequence_parallel)
    found = [(size, tensors.contain_any_shape(shapes)) for size, shapes in (facts.activations if facts else ())]
    return sum(size for size, is_split in found if is_split) / max(sum(size for size, _ in found), 1)


def _find_allreduced_gemms(kernels: pl.DataFrame) -> pl.DataFrame:
    """Find the GEMMs that an all-reduce follows, in order of launch.

    In the backward pass, these are the last GEMMs of each block's input gradient.

    Returns:
        Their rows of the kernel table with ``row``, ``elements``, the size of the all-reduce, and ``next_row``, that of
        the next block's first kernel; null behind the last block.
    """
    activations = infer_activations_from_gemms(kernels)
    order = list_block_kernels(kernels.with_columns(infer_split_sides(kernels, activations)["side"]))
    kind, plain = pl.col("kind"), pl.when(pl.col("kind").is_in(["n", "k"]))
    same_op = (pl.col("op_row").shift(-1).over("device") == pl.col("op_row")).fill_null(False)
    apart = (kind == "k") & (pl.col("phase") != BACKWARD) & ~same_op
    last = kind.shift(-1).over("device").ne_missing(kind) | apart
    tokens = plain.then("m").forward_fill().over("device")
    found = order.with_columns(
        elements=tokens * activations.hidden, next_row=pl.col("row").shift(-1).over("device")
    ).filter(kind.is_in(["k", EXPERTS]) & last)
    _check_expert_tokens(order)
    if found.is_empty():
        raise LayoutError(layouts.NO_BLOCKS())
    return found


def _check_expert_tokens(order: pl.DataFrame) -> None:
    """Refuse experts that run one after the other on their own tokens: they are summed before the all-reduce."""
    kind, m = pl.col("kind"), pl.col("m")
    attended = pl.when(kind.shift(1).over("device") == HEADS).then(m).forward_fill().over("device")
    forward = order.with_columns(attended=attended).filter((kind == "k") & (pl.col("phase") != BACKWARD))
    if (part := compute_time_share(forward, "dur_ns", m != pl.col("attended"))) > MAX_UNKNOWN_PCT:
        raise LayoutError(layouts.EXPERTS_OUTSIDE_ATTENTION_TOKENS(time_pct=part))


def _build_exchange_rows(program: Program, gemms: pl.DataFrame) -> pl.DataFrame:
    """Build the kernel-table rows of the all-reduces, without name and op."""
    return gemms.select(
        "step", "device", "phase", ts_ns=pl.col("ts_ns") + pl.col("dur_ns"),
        bytes=pl.col("elements") * compute_item_bytes(),
        dtype=choose_message_dtype(), collective=pl.lit("all_reduce"),
        **build_collective_columns(program, TP_GROUP),
    )  # fmt: skip


def _write_allreduce_note(gemms: pl.DataFrame, op: str, host: Message) -> Message:
    steps = max(gemms["step"].drop_nulls().n_unique(), 1)
    size = gemms.select((pl.col("elements") * compute_item_bytes()).sum()).item() / steps
    trains = op == NCCL_ALLREDUCE_OP
    note = told.TENSOR_PARALLEL_INSERTED if trains else told.TENSOR_PARALLEL_INFERENCE_INSERTED
    return note(allreduces=gemms.height / steps, message_bytes=size, host_cost=host)
