"""Insert the all-to-alls of expert parallelism (EP) into a run whose ranks have all experts.

Megatron-LM's all-to-all dispatcher, DeepSpeed and torchtitan work in this way: before a layer's experts, each rank
sends every token to the ranks of the experts that it is routed to, once for each, and gets it back after the experts.
In the backward pass the gradients go the same ways.
"""

import numpy as np
import polars as pl

from tracekit.messages import Message
from tracekit.messages import layout_notes as told
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.expert_parallel import MoeExperts, find_experts
from tracekit.parallelism.inserted import (
    NO_NODE,
    Insertion,
    append_kernels,
    build_collective_columns,
    find_stream_neighbours,
)
from tracekit.parallelism.layout import EP_GROUP, LayoutError
from tracekit.parallelism.stream_insertion import describe_host_cost, insert_in_stream
from tracekit.parallelism.transformer_blocks import choose_message_dtype, compute_item_bytes
from tracekit.run import MeasuredRun


def insert_expert_alltoalls(run: MeasuredRun) -> Insertion:
    """Insert the all-to-alls before and after the experts of each MoE layer.

    Forward and backward alike::

        compute stream | router |                     | expert GEMMs |                     | next kernel
        new stream              | all-to-all dispatch |              | all-to-all combine  |

    Nothing runs at the same time. The all-to-alls take no time here, as they have one rank: ``relayout`` and
    ``collectives`` set their times.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The experts are unknown.
    """
    experts = find_experts(run)
    sent = _find_alltoall_sites(run, experts)
    cost_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(run))
    behind = sent["behind"].to_numpy().astype(np.int64)
    grown = append_kernels(run, _build_alltoall_rows(run, sent, experts), insert_in_stream(run.graph, behind, cost_ns))
    return Insertion(grown, _write_alltoall_note(sent, experts, describe_host_cost(run.graph, behind, cost_ns)))


def _find_alltoall_sites(run: MeasuredRun, experts: MoeExperts) -> pl.DataFrame:
    """Find the all-to-alls in order of launch: what each moves, and ``behind``, the activity that it follows."""
    cpu = run.graph.nodes.n_host
    ends = experts.gemms.group_by("layer", maintain_order=True).agg(
        pl.first("step", "device", "phase", "dtype", "pairs"),
        ts_ns=pl.concat_list(pl.col("ts_ns").first(), (pl.col("ts_ns") + pl.col("dur_ns")).last()),
        at=pl.concat_list(pl.col("row").first(), pl.col("row").last()).cast(pl.List(pl.Int64)),
    )
    table = ends.with_columns(dispatches=pl.lit([True, False])).explode("ts_ns", "at", "dispatches")
    node = cpu + table["at"].to_numpy()
    dispatches = table["dispatches"].to_numpy()
    behind = np.where(dispatches, find_stream_neighbours(run.graph)[1][node], node)
    if (behind == NO_NODE).any():
        raise LayoutError("the trace begins with MoE experts: where their tokens come from isn't in it.")
    return table.with_columns(behind=pl.Series(behind))


def _build_alltoall_rows(run: MeasuredRun, sent: pl.DataFrame, experts: MoeExperts) -> pl.DataFrame:
    """Build the kernel-table rows of the all-to-alls."""
    return sent.select(
        "step", "device", "phase", "ts_ns", bytes=pl.col("pairs") * experts.hidden * compute_item_bytes(),
        dtype=choose_message_dtype(), name=pl.lit("all-to-all"), op=pl.lit("c10d::alltoall_base_"),
        collective=pl.lit("all_to_all"), **build_collective_columns(run, EP_GROUP),
    )  # fmt: skip


def _write_alltoall_note(sent: pl.DataFrame, experts: MoeExperts, host: Message) -> Message:
    steps = max(sent["step"].drop_nulls().n_unique(), 1)
    size = sent.select((pl.col("pairs") * experts.hidden * compute_item_bytes()).sum()).item() / steps
    return told.EXPERT_PARALLEL_INSERTED(
        experts=experts.experts_per_layer, alltoalls=sent.height / steps, message_bytes=size, host_cost=host
    )
