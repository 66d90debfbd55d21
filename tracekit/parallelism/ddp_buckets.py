"""Find a job's gradients and assign them to the all-reduce buckets of DistributedDataParallel (DDP).

Gradients enter a bucket in the order in which the backward pass produces them. A bucket is full once it reaches its
size limit; the first bucket of each type has a lower limit (Li et al., PyTorch Distributed: Experiences on Accelerating
Data Parallel Training, VLDB 2020; torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size).
"""

import json
from collections.abc import Callable, Sequence

import polars as pl

from tracekit.messages import layouts
from tracekit.parallelism.gradients import EMBEDDING_TABLE_OPS, find_gradients
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.table_exchange import has_table_exchange
from tracekit.program import Program
from tracekit.workload.module_paths import OPTIMIZER
from tracekit.workload.parameters import ACCUMULATE_GRAD_OP
from tracekit.workload.signature import Tensor

FIRST_BUCKET_BYTES = 2**20
BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel's defaults, bucket_cap_mb=25."""

DEFAULT_ITEM_BYTES = 4
"""Bytes per element of gradients whose type wasn't recorded (older traces)."""


def find_exchanged_gradients(
    program: Program, is_separate: Callable[[Tensor], bool] = lambda gradient: False
) -> pl.DataFrame:
    """Find the gradients that replicas would all-reduce: those of the last backward pass before each optimizer step.

    Args:
        program: The program, of one rank.
        is_separate: Selects gradients that have buckets of their own, such as experts'.

    Returns:
        One row per gradient, in order of time: ``exchange``, the number of the optimizer step; ``step``, ``pid``,
        ``tid``; ``done_ns``, when it was accumulated; ``numel``, ``bytes``, ``dtype``, ``input_dims``; its ``bucket``;
        and whether it is ``apart``, that is, separate.

    Raises:
        LayoutError: The gradients are unknown.
    """
    one_pass = require_gradients(program)
    count = len(one_pass)
    rows = _find_accumulations(program).filter(pl.len().over("exchange") >= count)
    last = rows.filter(pl.int_range(pl.len()).reverse().over("exchange") < count)
    if last.is_empty():
        raise _make_gradients_error()
    described = pl.DataFrame(
        {
            "numel": [gradient.numel for gradient in one_pass],
            "bytes": [gradient.numel * gradient.get_item_bytes(DEFAULT_ITEM_BYTES) for gradient in one_pass],
            "dtype": [gradient.dtype or "fp32" for gradient in one_pass],
            "bucket": assign_buckets(one_pass, is_separate),
            "apart": [is_separate(gradient) for gradient in one_pass],
            "input_dims": [json.dumps([gradient.shape]) for gradient in one_pass],
        }
    )
    return last.hstack(pl.concat([described] * (last.height // count)))


def require_gradients(program: Program) -> list[Tensor]:
    """Return the gradients that one backward pass accumulates, in order of time.

    Raises:
        LayoutError: They are unknown.
    """
    if program.trace.ops["name"].str.contains(EMBEDDING_TABLE_OPS).any() and not has_table_exchange(program):
        raise LayoutError(layouts.EMBEDDING_TABLES())
    one_pass = find_gradients(program)
    if not one_pass:
        raise _make_gradients_error()
    return one_pass


def _make_gradients_error() -> LayoutError:
    return LayoutError(layouts.GRADIENTS_UNKNOWN())


def assign_buckets(
    one_pass: Sequence[Tensor], is_separate: Callable[[Tensor], bool] = lambda gradient: False
) -> list[int]:
    """Assign each gradient to a bucket; buckets are numbered in the order of their all-reduces.

    Worked example, fp32: gradients of 0.5, 0.6, 20 and 10 MiB have buckets 0, 0, 1, 1. The first bucket is full at 1
    MiB, later ones at 25 MiB; what is left at the end forms the last bucket.

    Args:
        one_pass: The gradients in order of time.
        is_separate: Selects gradients that have buckets of their own.
    """
    limits: dict[tuple[str | None, bool], int] = {}
    filling: dict[tuple[str | None, bool], list[int]] = {}
    full: list[list[int]] = []
    sizes = [gradient.numel * gradient.get_item_bytes(DEFAULT_ITEM_BYTES) for gradient in one_pass]
    for place, gradient in enumerate(one_pass):
        kind = gradient.dtype, is_separate(gradient)
        bucket = filling.setdefault(kind, [])
        bucket.append(place)
        if sum(sizes[one] for one in bucket) >= limits.get(kind, FIRST_BUCKET_BYTES):
            full.append(filling.pop(kind))
            limits[kind] = BUCKET_BYTES
    number = {place: at for at, bucket in enumerate([*full, *filling.values()]) for place in bucket}
    return [number[place] for place in range(len(one_pass))]


def _find_accumulations(program: Program) -> pl.DataFrame:
    """Find all gradient accumulations in a program's steps; ``exchange`` numbers the next optimizer step."""
    ops = program.trace.ops.filter((pl.col("name") == ACCUMULATE_GRAD_OP) & pl.col("input_dims").is_not_null())
    optimizer = program.kernels.filter((pl.col("phase") == OPTIMIZER) & pl.col("call").is_not_null())
    stepped = program.trace.calls["ts_ns"].gather(optimizer["call"]).sort()
    steps = program.steps.select("step", "start_ns", "end_ns").sort("start_ns")
    rows = (
        ops.sort("ts_ns")
        .select("pid", "tid", "ts_ns", done_ns=pl.col("ts_ns") + pl.col("dur_ns"))
        .join_asof(steps, left_on="ts_ns", right_on="start_ns")
        .filter(pl.col("ts_ns") < pl.col("end_ns"))
    )
    after = pl.Series("after", stepped.search_sorted(rows["ts_ns"]))
    return rows.with_columns(exchange=pl.struct("step", after=after).rle_id()).select(
        "exchange", "step", "pid", "tid", "done_ns"
    )
