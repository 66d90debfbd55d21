"""Edit: embedding tables of another number of rows, look-ups of another number of rows, or other skew."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

import predictors
from predictors import Gpu
from tracekit.embedding_table_spec import TableSpec
from tracekit.errors import WhatIfError
from tracekit.index_distribution import ZipfPattern
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.run import find_recorded_gpu
from tracekit.trace import RankTrace
from tracekit.whatif.edited import EditedProgram, scale_kernel_times
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.table_edits import BAG_GRADIENTS, EditedOps, TableEdit, edit_table_ops

WORK_COLUMNS = (
    "rows", "cols", "flops", "bytes", "serial_clocks", "warp_clocks", "accessed_bytes", "reuse_bytes", "streamed_bytes",
    "host_bytes",
)  # fmt: skip


def change_tables(program: Program, spec: TableSpec, *, keeps_pooling: bool) -> EditedProgram:
    """Give all embedding tables of one width another number of rows.

    The work of look-ups, of their backward pass and of updates is computed anew; each kernel's time changes as the law
    of the trace's GPU says.

    Args:
        program: The program.
        spec: The tables; their width stays.
        keeps_pooling: Whether as many rows are looked up as in the trace.

    Raises:
        WhatIfError: There are no tables, they are of another width or number, or the trace names no GPU.
    """
    if spec.count != 1:
        raise WhatIfError(messages.TABLES_FIXED_NUMBER(count=spec.count))
    gpu = find_recorded_gpu(program.trace)
    if gpu is None:
        raise WhatIfError(messages.TABLES_WITHOUT_GPU())
    edit = TableEdit(spec.rows, spec.width, None if keeps_pooling else spec.pooling)
    edits = [edit_table_ops(rank.ops, edit) for rank in program.ranks]
    widths = list(dict.fromkeys(width for one in edits for width in one.widths))
    if spec.width not in widths:
        raise WhatIfError(
            messages.TABLES_FIXED_WIDTH(widths=widths, asked=spec.width) if widths else messages.TABLES_MISSING()
        )
    edited = [_replace_ops(*pair, spec.alpha) for pair in zip(program.ranks, edits, strict=True)]
    before, after = (_stack_kernels(ranks) for ranks in (program.ranks, edited))
    if any(one.old_rows for one in edits):
        _refuse_unknown_updates(before, after)
    factor, changed = _compare_times(before, after, gpu)
    old_us = float((before["dur_ns"].to_numpy() * changed).sum())
    new_us = float((before["dur_ns"].to_numpy() * factor * changed).sum())
    told = messages.TABLES_CHANGED(
        kernels=int(changed.sum()), rows=spec.rows, width=spec.width, ratio=new_us / old_us if old_us else 1.0
    )
    return EditedProgram(scale_kernel_times(program, factor), int(changed.sum()), told)


def _replace_ops(rank: RankTrace, edited: EditedOps, alpha: float | None) -> RankTrace:
    return replace(rank, ops=edited.ops, indices=rank.indices if alpha is None else ZipfPattern(alpha))


def _refuse_unknown_updates(before: pl.DataFrame, after: pl.DataFrame) -> None:
    """Refuse other rows of tables that an optimizer updates as a whole, where its lists weren't recorded."""
    if not before["op"].is_in(BAG_GRADIENTS).any():
        return
    updates = (pl.col("family") == "optimizer") & pl.col("op").str.starts_with("aten::")
    pairs = before.with_columns(new_dims=after["input_dims"]).filter(updates)
    if pairs.height and (pairs["input_dims"] == pairs["new_dims"]).all():
        raise WhatIfError(messages.TABLES_UPDATED_WHOLE())


def _stack_kernels(ranks: Sequence[RankTrace]) -> pl.DataFrame:
    return pl.concat(map(build_kernel_table, ranks))


def _compare_times(
    before: pl.DataFrame, after: pl.DataFrame, gpu: Gpu
) -> "tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.bool_]]]":
    """Return the factor on each kernel's time, and whether its work changed."""
    same = [before[name].eq_missing(after[name]) for name in WORK_COLUMNS]
    changed = ~np.logical_and.reduce([one.to_numpy() for one in same])
    laws = [predictors.predict(table.filter(changed), gpu)["time_us"].to_numpy() for table in (before, after)]
    factor = np.ones(before.height)
    factor[changed] = np.nan_to_num(laws[1] / laws[0], nan=1.0)
    return factor, changed
