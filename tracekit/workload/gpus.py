"""The GPUs that the processes of a job drive: usually one each."""

import numpy as np
import polars as pl

from tracekit.arrays import Ints, fill_nulls, find_nulls


def number_gpus(kernels: pl.DataFrame) -> Ints:
    """Number the GPU of each kernel among those of its rank, from 0; 0 where the trace doesn't tell.

    Args:
        kernels: The kernel table with ``rank``.
    """
    rank, device, unknown = kernels["rank"].to_numpy(), fill_nulls(kernels["device"], 0), find_nulls(kernels["device"])
    number = np.zeros(rank.size, dtype=np.int64)
    used, code = np.unique(np.stack([rank, device])[:, ~unknown], axis=1, return_inverse=True)
    number[~unknown] = (np.arange(used.shape[1]) - np.searchsorted(used[0], used[0]))[code]
    return number


def count_gpus_per_rank(kernels: pl.DataFrame) -> int:
    """Count the GPUs that a rank drives, of several ranks the one that drives most; at least 1.

    Args:
        kernels: The kernel table with ``rank``.
    """
    return int(number_gpus(kernels).max(initial=0)) + 1
