"""The GPUs that the processes of a job drive: usually one each."""

import polars as pl

from tracekit.arrays import Ints


def number_gpus(kernels: pl.DataFrame) -> Ints:
    """Number the GPU of each kernel among those of its rank, from 0; 0 where the trace doesn't tell.

    Args:
        kernels: The kernel table with ``rank``.
    """
    used = kernels.select("rank", "device").unique().drop_nulls("device")
    place = (pl.col("device").rank("dense").over("rank") - 1).cast(pl.Int64)
    numbered = kernels.select("rank", "device").join(
        used.with_columns(place=place), on=["rank", "device"], how="left", maintain_order="left"
    )
    return numbered["place"].fill_null(0).to_numpy()


def count_gpus_per_rank(kernels: pl.DataFrame) -> int:
    """Count the GPUs that a rank drives, of several ranks the one that drives most; at least 1.

    Args:
        kernels: The kernel table with ``rank``.
    """
    return int(number_gpus(kernels).max(initial=0)) + 1
