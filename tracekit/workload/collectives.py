"""Collectives: canonical names, message sizes and ranks from what torch.distributed recorded."""

import polars as pl

# nccl-tests' convention: the size of a collective is that of its whole buffer, which is the output of an all-gather
# and the input of everything else (nccl-tests, doc/PERFORMANCE.md).
SIZED_BY_OUTPUT = "all_gather"

NAMES = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_allv": "all_to_all",
    "alltoall_base": "all_to_all",
}
ELEMENT_BYTES = {
    "Float": 4,
    "Half": 2,
    "BFloat16": 2,
    "Double": 8,
    "Long": 8,
    "Int": 4,
    "Short": 2,
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
}


def describe(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with ``collective``, ``bytes`` and ``ranks`` set on the rows of that family, and only there."""
    is_collective = pl.col("family") == "collective"
    name = pl.col("collective").replace(NAMES)
    nelems = pl.when(name == SIZED_BY_OUTPUT).then("out_nelems").otherwise("in_nelems")
    size = nelems * pl.col("collective_dtype").replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    return kernels.with_columns(
        collective=pl.when(is_collective).then(name),
        bytes=pl.when(is_collective).then(size).otherwise("bytes"),
        ranks=pl.when(is_collective).then("group_size"),
    )
