"""Bound the size of a message that wasn't recorded, from the launch of its kernel.

NCCL gives a small message fewer channels (blocks), then fewer threads. Its choice bounds the size. From
``src/enqueue.cc`` of NCCL 2.10 to 2.27: while bytes < channels x threads x threshold, NCCL removes a channel, and
halves the threads of the last channel.
"""

import polars as pl

PROTOCOL_AND_MOVING_THREADS = {
    512: ("LL", 512),
    256: ("LL", 256),
    128: ("LL", 128),
    96: ("LL", 64),
    64: ("LL", 64),
    544: ("Simple", 512),
    288: ("Simple", 256),
    160: ("Simple", 128),
    640: ("LL128", 640),
    320: ("LL128", 320),
}
"""Threads of a block to protocol and the number of threads that move data; Simple has one more warp."""

THRESHOLD_BYTES = {"LL": 8, "LL128": 8, "Simple": 64}
"""Bytes per thread by protocol; for LL in a ring also per rank."""

MAX_MOVING_THREADS = (512, 640)
MIN_MOVING_THREADS = (64, 320)
SIZE_TOLERANCE = 0.05
"""Later versions round sizes to cells of a few percent."""


def bound_message_bytes(kernels: pl.DataFrame) -> pl.DataFrame:
    """Compute bounds on the bytes of NCCL's collectives.

    Args:
        kernels: Rows of the kernel table: ``name``, ``blocks``, ``threads_per_block``, ``process_group``, ``ranks``.

    Returns:
        ``least_bytes`` and ``most_bytes``, row by row. Both are null where the launch has no information, as for RCCL
        and for sends; ``most_bytes`` is null where the message has all channels.
    """
    table = kernels.with_columns(
        protocol=pl.col("threads_per_block").replace_strict(
            {threads: protocol for threads, (protocol, _) in PROTOCOL_AND_MOVING_THREADS.items()},
            default=None,
            return_dtype=pl.String,
        ),
        movers=pl.col("threads_per_block").replace_strict(
            {threads: movers for threads, (_, movers) in PROTOCOL_AND_MOVING_THREADS.items()},
            default=None,
            return_dtype=pl.Int64,
        ),
    )
    readable = pl.col("name").str.contains(r"^nccl(?:Dev)?Kernel") & ~pl.col("name").str.contains("Generic|SendRecv")
    of_rank = pl.when(pl.col("protocol") == "LL").then(pl.col("ranks")).otherwise(1)
    threshold = pl.col("protocol").replace_strict(THRESHOLD_BYTES, default=None, return_dtype=pl.Int64) * of_rank
    channel = pl.col("movers") * threshold
    most_channels = pl.col("blocks").max().over("process_group", "ranks")
    has_all = (pl.col("blocks") == most_channels) & pl.col("movers").is_in(MAX_MOVING_THREADS)
    least = (
        pl.when(pl.col("movers").is_in(MIN_MOVING_THREADS) & (pl.col("blocks") == 1))
        .then(0)
        .otherwise(pl.col("blocks") * channel)
    )
    return table.select(
        least_bytes=pl.when(readable).then((1 - SIZE_TOLERANCE) * least),
        most_bytes=pl.when(readable & ~has_all).then((1 + SIZE_TOLERANCE) * (pl.col("blocks") + 1) * channel),
    )
