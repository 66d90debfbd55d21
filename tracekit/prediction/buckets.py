"""The gradients of a job and the buckets in which data-parallel copies exchange them, as DistributedDataParallel does.

Gradients are put into buckets in the order in which they come; a bucket is full once it reaches its limit, the first
one of each type sooner than the others (Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel
Training, VLDB 2020; torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size).
"""

import json
from collections.abc import Callable, Sequence

import polars as pl

from tracekit.prediction.layout import LayoutError
from tracekit.prediction.memory import TABLES, gradients
from tracekit.replay.run import Run
from tracekit.workload.parameters import GRADIENT
from tracekit.workload.phases import OPTIMIZER
from tracekit.workload.signature import Tensor

FIRST_BYTES = 2**20
BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel's defaults, bucket_cap_mb=25."""

UNTOLD_BYTES = 4
"""Of a gradient whose type wasn't recorded, in older traces."""


def exchanged(run: Run, apart: Callable[[Tensor], bool] = lambda gradient: False) -> pl.DataFrame:
    """The gradients that copies of a job would exchange: those of the last backward pass before each optimizer step.

    Args:
        run: The measured run, of one rank.
        apart: Which gradients don't share buckets with the others.

    Returns:
        A row for each, in the order in which they came: ``exchange``, the number of the optimizer step; ``step``,
        ``pid``, ``tid``, ``done_ns`` when it was accumulated; ``numel``, ``bytes``, ``dtype``, ``input_dims``; its
        ``bucket``; and whether it is ``apart``.

    Raises:
        LayoutError: The trace doesn't tell the gradients.
    """
    one_pass = one_backward_pass(run)
    count = len(one_pass)
    rows = _accumulated(run).filter(pl.len().over("exchange") >= count)
    last = rows.filter(pl.int_range(pl.len()).reverse().over("exchange") < count)
    if last.is_empty():
        raise _untold()
    described = pl.DataFrame(
        {
            "numel": [gradient.numel for gradient in one_pass],
            "bytes": [gradient.numel * gradient.item_bytes(UNTOLD_BYTES) for gradient in one_pass],
            "dtype": [gradient.dtype or "fp32" for gradient in one_pass],
            "bucket": buckets(one_pass, apart),
            "apart": [apart(gradient) for gradient in one_pass],
            "input_dims": [json.dumps([gradient.shape]) for gradient in one_pass],
        }
    )
    return last.hstack(pl.concat([described] * (last.height // count)))


def one_backward_pass(run: Run) -> list[Tensor]:
    """The gradients that one backward pass accumulates, in the order in which they come.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The trace doesn't tell them.
    """
    if run.trace.ops["name"].str.contains(TABLES).any():
        raise LayoutError("the trace has embedding tables, which replicas would shard: their exchange isn't known.")
    one_pass = gradients(run)
    if not one_pass:
        raise _untold()
    return one_pass


def _untold() -> LayoutError:
    return LayoutError(
        "the trace has one data-parallel rank, and doesn't tell the gradients that replicas would exchange:",
        "record with record_shapes=True and without capturing the backward pass in a CUDA graph, or two ranks.",
    )


def buckets(one_pass: Sequence[Tensor], apart: Callable[[Tensor], bool] = lambda gradient: False) -> list[int]:
    """The bucket of each gradient, numbered in the order in which they are exchanged.

    Args:
        one_pass: The gradients in the order in which they come.
        apart: Which of them don't share buckets with the others.
    """
    limits: dict[tuple[str | None, bool], int] = {}
    filling: dict[tuple[str | None, bool], list[int]] = {}
    full: list[list[int]] = []
    sizes = [gradient.numel * gradient.item_bytes(UNTOLD_BYTES) for gradient in one_pass]
    for place, gradient in enumerate(one_pass):
        kind = gradient.dtype, apart(gradient)
        bucket = filling.setdefault(kind, [])
        bucket.append(place)
        if sum(sizes[one] for one in bucket) >= limits.get(kind, FIRST_BYTES):
            full.append(filling.pop(kind))
            limits[kind] = BUCKET_BYTES
    number = {place: at for at, bucket in enumerate([*full, *filling.values()]) for place in bucket}
    return [number[place] for place in range(len(one_pass))]


def _accumulated(run: Run) -> pl.DataFrame:
    """All gradients of a run's steps as they were accumulated, with the optimizer step that follows as ``exchange``."""
    ops = run.trace.ops.filter((pl.col("name") == GRADIENT) & pl.col("input_dims").is_not_null())
    optimizer = run.kernels.filter((pl.col("phase") == OPTIMIZER) & pl.col("call").is_not_null())
    stepped = run.trace.calls["ts_ns"].gather(optimizer["call"]).sort()
    steps = run.steps.select("step", "start_ns", "end_ns").sort("start_ns")
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
