"""Sends and receives of one group (``batch_isend_irecv``), which a single kernel runs when the group ends.

PyTorch notes each message where it is queued, and nothing on the kernel::

    CPU   record_param_comms(send, 0)  record_param_comms(recv, 2)  launch
    GPU                                                               |= ncclDevKernel_SendRecv =|
"""

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload.signature import ITEM_BYTES

RECORDING_OP = "record_param_comms"
KERNEL_PATTERN = r"(?i)^(?:void )?(?:nccl|rccl).*send_?recv|ncclDevKernel_Generic"
THREAD = ("pid", "tid")
GROUP_COLUMNS = ("group_size", "process_group", "group_description", "group_ranks")
FILLED_COLUMNS = ("collective", "collective_dtype", "in_nelems", "out_nelems", "sender", "receiver", *GROUP_COLUMNS)


def fill_grouped_sends(kernels: pl.DataFrame, trace: RankTrace, item_bytes: dict[str, int]) -> pl.DataFrame:
    """Fill in what a kernel sends and receives, where the messages were noted before its launch.

    Args:
        kernels: The activities with ``call``, ``op_row`` and the columns of collectives.
        trace: What the rank recorded.
        item_bytes: Bytes of an element by its type, as torch.distributed names it.
    """
    messages = _list_queued_messages(kernels, trace.ops)
    if messages.is_empty():
        return kernels
    unsized = kernels.with_row_index("kernel").filter(
        pl.col("name").str.contains(KERNEL_PATTERN), pl.col("in_nelems").is_null(), pl.col("call").is_not_null()
    )
    if unsized.is_empty():
        return kernels
    launches = unsized.select("kernel").hstack(trace.calls["ts_ns", *THREAD][unsized["call"].to_list()])
    joined = messages.sort("ts_ns").join_asof(
        launches.sort("ts_ns"), on="ts_ns", by=THREAD, strategy="forward", check_sortedness=False
    )
    found = joined.drop_nulls("kernel").group_by("kernel").agg(*_sum_messages(item_bytes), *_find_pair(trace.rank or 0))
    filled = kernels.select(kernel=pl.int_range(pl.len(), dtype=pl.UInt32)).join(
        found, on="kernel", how="left", maintain_order="left"
    )
    return kernels.with_columns(
        pl.coalesce(filled[column].cast(kernels[column].dtype), kernels[column]) for column in FILLED_COLUMNS
    )


def _list_queued_messages(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """List the noted sends and receives that launched no kernel of their own."""
    noted = ops.with_row_index("op_row").filter(
        pl.col("name") == RECORDING_OP, pl.col("collective").is_in(["send", "recv"])
    )
    return noted.join(kernels.select(pl.col("op_row").cast(pl.UInt32)).unique(), on="op_row", how="anti")


def _sum_messages(item_bytes: dict[str, int]) -> list[pl.Expr]:
    """Sum the messages of a group by direction, in elements of the first message's type."""
    item = pl.col("collective_dtype").replace_strict(item_bytes, default=ITEM_BYTES["fp32"], return_dtype=pl.Int64)
    size = pl.max_horizontal("in_nelems", "out_nelems") * item
    totals = (
        (size.filter(pl.col("collective") == way).sum() // item.first()).alias(column)
        for way, column in (("send", "in_nelems"), ("recv", "out_nelems"))
    )
    return [pl.lit("send").alias("collective"), pl.first("collective_dtype", *GROUP_COLUMNS), *totals]


def _find_pair(rank: int) -> tuple[pl.Expr, pl.Expr]:
    """Find who sends and who receives, if all messages of a group have one peer; the lower rank first in both ways.

    Args:
        rank: The rank whose messages they are.
    """
    way, peer = pl.col("collective"), pl.coalesce("sender", "receiver")
    is_pair = (peer.n_unique() == 1) & peer.is_not_null().all()
    has_both = way.n_unique() == 2
    sender = (
        pl.when(has_both).then(pl.min_horizontal(peer.first(), rank)).when((way == "recv").all()).then(peer.first())
    )
    receiver = (
        pl.when(has_both).then(pl.max_horizontal(peer.first(), rank)).when((way == "send").all()).then(peer.first())
    )
    return pl.when(is_pair).then(sender).alias("sender"), pl.when(is_pair).then(receiver).alias("receiver")
