"""Predict context parallelism (CP): ranks split each sequence, and attention gathers the keys and values of all.

All but attention works on a rank's tokens. Its queries attend to the keys of the whole sequence, so that keys and
values are all-gathered before attention, in the backward pass again, and their gradients reduce-scattered behind it:
the all-gather exchange of PyTorch's ``context_parallel`` and of TransformerEngine. Nothing of the layer overlaps it.
In a ring (``--cp-ring``) ranks pass blocks on while they attend to the last one: as many bytes, beside attention.
"""

import numpy as np
import polars as pl

from tracekit.messages import layouts
from tracekit.parallelism.batch_size import scale_batch
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
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
from tracekit.parallelism.process_groups import CP_GROUP
from tracekit.program import Program
from tracekit.workload.signature import ITEM_BYTES

CHUNKS_PER_RANK = 2
"""Chunks of a causally masked sequence on each rank, an early and a late one, so that all have as many pairs to attend:
PyTorch's load balancer, Megatron-LM and TransformerEngine."""


def split_tokens(kernels: pl.DataFrame, ops: pl.DataFrame, ranks: int) -> pl.DataFrame:
    """Return the kernel table of each of ``ranks`` ranks that split the sequences.

    Of a causal mask a rank has two chunks, whose mean one is that of the table. With 2 ranks::

        queries of   rank 0 | rank 1 | rank 1 | rank 0
        keys seen    1/4    | 2/4    | 3/4    | 4/4     5/8 in the mean, the mask's triangle included

    Args:
        kernels: The kernel table, of whole sequences.
        ops: The trace's ops.
        ranks: Ranks that split each sequence.

    Returns:
        The table with other dimensions where they change, and ``changed``, whether they did.

    Raises:
        LayoutError: Some work can't be split along the sequence, or is unknown.
    """
    attended = find_attention(kernels)
    _check_divisible(attended, ranks)
    split = scale_batch(kernels, ops, 1 / ranks)
    attention, causal = pl.col("family") == "attention", pl.col("causal").fill_null(value=False)
    chunks = pl.when(causal).then(CHUNKS_PER_RANK).otherwise(1)
    queries = pl.col("q_len") // (ranks * chunks)
    unseen = pl.when(causal).then(((pl.col("q_len") - queries) / 2).floor().cast(pl.Int64)).otherwise(0)
    edited = kernels.select(
        batch=pl.col("batch").fill_null(1) * chunks,
        mask_batch=pl.col("mask_batch"),
        q_len=queries,
        kv_len=pl.col("kv_len") - unseen,
    )
    return split.with_columns(
        pl.when(attention).then(edited[name]).otherwise(name).alias(name) for name in edited.columns
    )


def find_attention(kernels: pl.DataFrame) -> pl.DataFrame:
    """Find the attention of a program.

    Args:
        kernels: The kernel table.

    Returns:
        Its rows of the kernel table, and ``row``, their numbers.

    Raises:
        LayoutError: There is none with known sequences, or tokens are passed on in another way.
    """
    if (kernels["family"] == "linear_attention").any():
        raise LayoutError(layouts.CONTEXT_PARALLEL_RECURRENT())
    attended = kernels.with_row_index("row").filter(pl.col("family") == "attention")
    if attended.drop_nulls(["q_len", "kv_len", "head_dim", "heads"]).height < max(attended.height, 1):
        raise LayoutError(layouts.CONTEXT_PARALLEL_ATTENTION_UNKNOWN())
    return attended


def _check_divisible(attended: pl.DataFrame, ranks: int) -> None:
    """Refuse sequences that can't be split evenly: decode batches, too."""
    chunks = ranks * pl.when(pl.col("causal").fill_null(value=False)).then(CHUNKS_PER_RANK).otherwise(1)
    uneven = attended.filter(pl.col("q_len") % chunks != 0)
    if uneven.height:
        queries = uneven["q_len"][0]
        raise LayoutError(layouts.CONTEXT_PARALLEL_INDIVISIBLE(queries=queries, ranks=ranks, chunks=CHUNKS_PER_RANK))


def insert_ring_exchanges(program: Program) -> Insertion:
    """Insert the exchanges of ranks that pass keys and values around in a ring (Liu et al., Ring Attention, 2023).

    Blocks, and in the backward pass their gradients, are sent beside attention; what follows it waits for both::

        compute stream | query, key, value | attention       | next kernel
        new stream                         | sends |

    Args:
        program: The program.

    Raises:
        LayoutError: Its attention is unknown.
    """
    return _insert_exchanges(program, in_ring=True)


def insert_key_exchanges(program: Program) -> Insertion:
    """Insert the exchanges of keys and values that context-parallel ranks would issue.

    Forward an all-gather before attention; backward again, and a reduce-scatter of their gradients behind::

        compute stream | query, key, value |            | attention |                | next kernel
        new stream                         | all-gather |           | reduce-scatter |

    Args:
        program: The program.

    Raises:
        LayoutError: Its attention is unknown.
    """
    return _insert_exchanges(program, in_ring=False)


def _insert_exchanges(program: Program, *, in_ring: bool) -> Insertion:
    calls = _list_exchanges(find_attention(program.kernels))
    first, last = (program.graph.nodes.n_host + calls[name].to_numpy().astype(np.int64) for name in ("first", "last"))
    follows, precedes = find_stream_neighbours(program.graph)
    gathers = calls["collective"].to_numpy() == "all_gather"
    previous = np.where(precedes[first] != NO_NODE, precedes[first], first)
    behind = np.where(gathers | in_ring, previous, last)
    cost_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(program))
    rows = calls.drop("first", "last").with_columns(**build_collective_columns(program, CP_GROUP))
    graph = insert_in_stream(program.graph, behind, cost_ns, follows[last] if in_ring else None)
    steps = max(calls["step"].drop_nulls().n_unique(), 1)
    told = layouts.CONTEXT_PARALLEL_RING if in_ring else layouts.CONTEXT_PARALLEL_INSERTED
    note = told(
        gathers=int(gathers.sum()) / steps,
        scatters=int((~gathers).sum()) / steps,
        message_bytes=int(calls["bytes"].sum()) / steps,
        host_cost=describe_host_cost(program.graph, behind, cost_ns),
    )
    return Insertion(append_kernels(program, rows, graph), note)


def _list_exchanges(attended: pl.DataFrame) -> pl.DataFrame:
    """List the exchanges in order of launch: kernel-table rows, and the ``first`` and ``last`` row of attention's op.

    An op may have several kernels: the first is gathered for, and behind the last gradients are scattered.
    """
    item = pl.col("dtype").replace_strict(ITEM_BYTES, default=2, return_dtype=pl.Int64)
    heads = pl.coalesce("kv_heads", "heads")
    ordered = attended.sort("device", "ts_ns", "row")
    of_op = ordered.group_by(
        "device", call=pl.coalesce("op_row", -1 - pl.col("row").cast(pl.Int64)), maintain_order=True
    )
    ops = of_op.agg(
        pl.col("step", "phase", "dtype", "direction").first(),
        first=pl.col("row").first(), last=pl.col("row").last(),
        begin=pl.col("ts_ns").first(), end=(pl.col("ts_ns") + pl.col("dur_ns")).last(),
        bytes=(pl.col("batch").fill_null(1) * heads * pl.col("kv_len") * 2 * pl.col("head_dim") * item).max(),
    )  # fmt: skip
    kept = ("step", "device", "phase", "dtype", "bytes", "first", "last")
    gathers = ops.select(*kept, at="first", ts_ns="begin", collective=pl.lit("all_gather"))
    backward = ops.filter(pl.col("direction") == "backward")
    scatters = backward.select(*kept, at="last", ts_ns="end", collective=pl.lit("reduce_scatter"))
    listed = pl.concat([gathers, scatters]).sort("device", "ts_ns", "at", maintain_order=True)
    return listed.drop("at").with_columns(**name_exchanges())
