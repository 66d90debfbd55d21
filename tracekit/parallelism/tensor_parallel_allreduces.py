"""Insert the all-reduces of tensor parallelism (TP) into a run whose ranks have whole layers.

As in Megatron-LM (Shoeybi et al., 2019): in the forward pass an all-reduce of the output follows each block's second
GEMM; in the backward pass one follows the gradients of a block's input.
"""

import numpy as np
import polars as pl

from tracekit.messages import Message
from tracekit.messages import layout_notes as told
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.inserted import Insertion, append_kernels, build_collective_columns
from tracekit.parallelism.layout import MAX_UNKNOWN_PCT, TP_GROUP, LayoutError, is_training
from tracekit.parallelism.stream_insertion import describe_host_cost, insert_in_stream
from tracekit.parallelism.tensor_parallel import check_layers_known
from tracekit.parallelism.transformer_blocks import (
    EXPERTS,
    HEADS,
    choose_message_dtype,
    compute_item_bytes,
    infer_activations_from_gemms,
    infer_split_sides,
    list_block_kernels,
)
from tracekit.run import MeasuredRun
from tracekit.workload.phases import BACKWARD
from tracekit.workload.time_share import compute_time_share

NCCL_ALLREDUCE_OP, ENGINE_ALLREDUCE_OP = "c10d::allreduce_", "_C_custom_ar::all_reduce"
"""Ops of all-reduces in training and in inference; ``collective_calls`` chooses the latency model by them."""


def insert_layer_allreduces(run: MeasuredRun) -> Insertion:
    """Insert the all-reduces that tensor-parallel ranks would issue.

    Forward; backward they follow the gradient of the first GEMM's input::

        compute stream | GEMM 1 (split n) | GEMM 2 (split k) |            | next kernel
        new stream                                           | all-reduce |

    Nothing of the layer runs at the same time. The all-reduces take no time here, as they have one rank: ``relayout``
    and ``collectives`` set their times.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The blocks of the layers are unknown.
    """
    check_layers_known(run.kernels)
    behind = _find_allreduced_gemms(run.kernels)
    gemm = run.graph.nodes.n_host + behind["row"].to_numpy().astype(np.int64)
    cost_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(run))
    op = NCCL_ALLREDUCE_OP if is_training(run) else ENGINE_ALLREDUCE_OP
    grown = append_kernels(run, _build_allreduce_rows(run, behind, op), insert_in_stream(run.graph, gemm, cost_ns))
    return Insertion(grown, _write_allreduce_note(behind, op, describe_host_cost(run.graph, gemm, cost_ns)))


def _find_allreduced_gemms(kernels: pl.DataFrame) -> pl.DataFrame:
    """Find the GEMMs that an all-reduce follows, in order of launch, and its number of ``elements``.

    In the backward pass, these are the last GEMMs of each block's input gradient.
    """
    activations = infer_activations_from_gemms(kernels)
    order = list_block_kernels(kernels.with_columns(infer_split_sides(kernels, activations)["side"]))
    kind, plain = pl.col("kind"), pl.when(pl.col("kind").is_in(["n", "k"]))
    same_op = (pl.col("op_row").shift(-1).over("device") == pl.col("op_row")).fill_null(False)
    apart = (kind == "k") & (pl.col("phase") != BACKWARD) & ~same_op
    last = kind.shift(-1).over("device").ne_missing(kind) | apart
    tokens = plain.then("m").forward_fill().over("device")
    found = order.with_columns(elements=tokens * activations.hidden).filter(kind.is_in(["k", EXPERTS]) & last)
    _check_expert_tokens(order)
    if found.is_empty():
        raise LayoutError("the trace has no layers for tensor parallelism: no GEMM follows attention or another GEMM.")
    return found


def _check_expert_tokens(order: pl.DataFrame) -> None:
    """Refuse experts that run one after the other on their own tokens: they are summed before the all-reduce."""
    kind, m = pl.col("kind"), pl.col("m")
    attended = pl.when(kind.shift(1).over("device") == HEADS).then(m).forward_fill().over("device")
    forward = order.with_columns(attended=attended).filter((kind == "k") & (pl.col("phase") != BACKWARD))
    if (part := compute_time_share(forward, "dur_ns", m != pl.col("attended"))) > MAX_UNKNOWN_PCT:
        raise LayoutError(
            f"{part:.0f} % of the GEMMs whose outputs ranks would all-reduce work on other tokens than attention."
        )


def _build_allreduce_rows(run: MeasuredRun, gemms: pl.DataFrame, op: str) -> pl.DataFrame:
    """Build the kernel-table rows of the all-reduces."""
    return gemms.select(
        "step", "device", "phase", ts_ns=pl.col("ts_ns") + pl.col("dur_ns"),
        bytes=pl.col("elements") * compute_item_bytes(),
        dtype=choose_message_dtype(), name=pl.lit("all-reduce"), op=pl.lit(op), collective=pl.lit("all_reduce"),
        **build_collective_columns(run, TP_GROUP),
    )  # fmt: skip


def _write_allreduce_note(gemms: pl.DataFrame, op: str, host: Message) -> Message:
    steps = max(gemms["step"].drop_nulls().n_unique(), 1)
    size = gemms.select((pl.col("elements") * compute_item_bytes()).sum()).item() / steps
    trains = op == NCCL_ALLREDUCE_OP
    note = told.TENSOR_PARALLEL_INSERTED if trains else told.TENSOR_PARALLEL_INFERENCE_INSERTED
    return note(allreduces=gemms.height / steps, message_bytes=size, host_cost=host)
