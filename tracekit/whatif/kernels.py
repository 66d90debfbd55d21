"""Edits of kernels: scale, remove or fuse them, or change the tables that they look up."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

import predictors
from predictors import Gpu
from predictors.kernels import DTYPE_BYTES, MEMORY_FAMILIES
from tracekit.arrays import Bools, Floats, Ints
from tracekit.errors import RequestError, WhatIfError
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations, compute_edge_sources, remove_edges
from tracekit.graph.nodes import NONE
from tracekit.messages import what_ifs as messages
from tracekit.models.dlrm import TableSpec, parse_table_spec
from tracekit.models.lookups import ZipfPattern
from tracekit.program import Program
from tracekit.run import find_recorded_gpu
from tracekit.trace import RankTrace
from tracekit.whatif.launches import find_launch_calls, find_launch_sequences, remove_launches
from tracekit.whatif.registry import EditArguments, EditedProgram, edit, scale_kernel_times, take_kernels
from tracekit.whatif.select import KernelSelection
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.table_edits import BAG_GRADIENTS, EditedOps, TableEdit, edit_table_ops

MAX_FACTOR = 1e6


@edit("scale(KERNELS, FACTOR)", lambda given: {"select": given.get_kernels(words=1), "factor": given.get_number()})
def scale(program: Program, select: KernelSelection, factor: float) -> EditedProgram:
    """Multiply kernel times by ``factor``: 0.5 for twice as fast.

    Raises:
        WhatIfError: No kernel is selected, or the factor is negative or above ``MAX_FACTOR``.
    """
    if not 0 <= factor <= MAX_FACTOR:
        raise WhatIfError(messages.FACTOR_OUT_OF_RANGE(factor=factor, largest=MAX_FACTOR))
    rows = select.find_rows(program)
    count = int(rows.sum())
    change = messages.KERNELS_SCALED(kernels=count, factor=factor)
    return EditedProgram(scale_kernel_times(program, np.where(rows, factor, 1.0)), count, change)


@edit("remove(KERNELS)", take_kernels)
def remove(program: Program, select: KernelSelection) -> EditedProgram:
    """Remove kernels, their launches, and the ops that launch nothing else.

    Raises:
        WhatIfError: No kernel is selected, or all are.
    """
    rows = select.find_rows(program)
    if rows.all():
        raise WhatIfError(messages.RUN_EMPTY())
    calls = int(find_launch_calls(program, rows).sum())
    left = scale_kernel_times(remove_launches(program, rows), np.where(rows, 0.0, 1.0))
    links = left.links.drop(np.flatnonzero(rows)) if left.links else None
    left = replace(left, graph=_remove_rendezvous(left.graph, rows), links=links)
    # Kernels without a step aren't counted in any step.
    kernels = program.kernels.with_columns(step=pl.when(pl.Series(~rows)).then("step"))
    count = int(rows.sum())
    return EditedProgram(
        left.replace_tables(kernels=kernels), count, messages.KERNELS_REMOVED(kernels=count, launches=calls)
    )


def _remove_rendezvous(graph: Graph, rows: Bools) -> Graph:
    """Return the graph without the rendezvous edges and measured waits of some kernels."""
    gone = np.concatenate([np.zeros(graph.nodes.n_host, dtype=np.bool_), rows])
    meets = (graph.kind == EdgeKind.RENDEZVOUS) & (
        gone[compute_edge_sources(graph) // 2] | gone[compute_edge_destinations(graph) // 2]
    )
    return replace(remove_edges(graph, meets), kept_ns=np.where(rows, 0, graph.kept_ns))


@edit("fuse(KERNELS)", take_kernels)
def fuse(program: Program, select: KernelSelection) -> EditedProgram:
    """Fuse kernels that follow one another on a stream into one launch.

    The fused kernel takes the sum of their times, minus memory traffic that fusion saves. A tensor that one kernel
    wrote and the next one read is neither written nor read any more; this is applied only if both kernels are
    memory-bound, have the same size and their bytes are known. Kernels aren't fused across steps, threads or waits of
    the host for the GPU.

    Raises:
        WhatIfError: No two of the kernels follow one another.
    """
    rows = select.find_rows(program)
    before, after = _find_fusible_pairs(program, rows)
    if not after.size:
        raise WhatIfError(messages.KERNELS_NOT_ADJACENT(selection=str(select)))
    fused = np.zeros(rows.size, dtype=np.bool_)
    fused[after] = True
    count = int(np.unique(np.concatenate([before, after])).size)
    left = scale_kernel_times(remove_launches(program, fused), _compute_traffic_factors(program, before, after))
    return EditedProgram(left, count, messages.KERNELS_FUSED(kernels=count, fused=count - int(after.size)))


def _find_fusible_pairs(program: Program, rows: Bools) -> tuple[Ints, Ints]:
    """Find pairs of kernel rows, neighbours on a stream, that one launch could replace."""
    nodes = program.graph.nodes
    before, after = (pair - nodes.n_host for pair in nodes.find_neighbours(nodes.activities))
    number = np.concatenate([find_launch_sequences(program, find_launch_calls(program, rows)).sequence_id, [NONE]])[
        nodes.launcher
    ]
    together = rows[before] & rows[after] & (number[before] == number[after]) & (number[after] != NONE)
    return before[together], after[together]


def _compute_traffic_factors(program: Program, before: Ints, after: Ints) -> Floats:
    """Compute the fraction of each kernel's memory traffic that remains."""
    known = program.kernels.select(
        bytes="bytes",
        elements=pl.col("rows") * pl.col("cols"),
        item=pl.col("dtype").replace_strict(DTYPE_BYTES, default=None, return_dtype=pl.Float64),
        bound=pl.col("family").is_in(MEMORY_FAMILIES),
    )
    first, second = known[before.tolist()], known[after.tolist()]
    alike = first["bound"] & second["bound"] & (first["elements"] == second["elements"])
    passed = (first["elements"] * first["item"]).set(~alike.fill_null(False), 0).fill_null(0).to_numpy()
    saved = np.zeros(program.kernels.height)
    np.add.at(saved, before, passed)
    np.add.at(saved, after, passed)
    whole = known["bytes"].fill_null(0).to_numpy()
    return np.where(whole > 0, np.maximum(1 - saved / np.maximum(whole, 1), 0.0), 1.0)


WORK_COLUMNS = (
    "rows", "cols", "flops", "bytes", "serial_clocks", "warp_clocks", "accessed_bytes", "reuse_bytes", "distinct_bytes",
    "streamed_bytes", "host_bytes",
)  # fmt: skip


def _take_tables(given: EditArguments) -> dict[str, Any]:
    text = given.refuse_extra(words=1).get_word("a table, such as 40Mx128:20")
    try:
        return {"spec": parse_table_spec(text), "keeps_pooling": ":" not in text}
    except RequestError as error:
        raise WhatIfError(error.catalogue_message) from error


@edit("tables(ROWSxWIDTH[:POOLING[:ALPHA]])", _take_tables)
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
