"""Kernels by shape, longest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl

from predictors.model import TILE_COLUMNS
from tracekit.arrays import IN_ORDER
from tracekit.format import format_shape
from tracekit.prediction import Prediction
from tracekit.reporting.columns import Column
from tracekit.reporting.kernel_rows import choose_tiles
from tracekit.run import MeasuredRun

KERNEL_KEYS = ("name", "input_dims", "op", "family", "dtype")
"""Columns whose equal values make launches one kernel."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a matrix product, a layer of experts or attention is cut into blocks.

    Attributes:
        kept_ratio: On a target, how many times as long a product would take with the trace's tile; ``None`` if unknown.
    """

    tile_m: Annotated[int, Column("Rows of a tile, of attention queries of a block, as the name tells.")]
    tile_n: Annotated[int | None, Column("Columns of the tile, of attention keys.")]
    split_k: Annotated[int | None, Column("Parts that the k of a product is cut into, of decoding the keys.")]
    waves: Annotated[float | None, Column("Blocks over SMs: 1.2 are two rounds, the second of a fifth of the SMs.")]
    kept_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All launches of one kernel on one shape.

    Attributes:
        work_known: Whether its work is known.
        predicted_us: Summed time per step on each target, in the report's order of targets.
        limiters: Limiting resource on each target.
        methods: How the time on each target was obtained: measured, transfer, law, scaled or kept.
        tiles: As the kernel's name tells them; ``None`` for others.
        predicted_tiles: On each target, as the law chooses them; ``None`` for kernels that aren't tiled, and where
            kernels of another size run there.
    """

    name: Annotated[str, Column("The kernel's name.", "kernel")]
    op: Annotated[str | None, Column("The CPU op that launches it.", "op")]
    family: Annotated[str, Column("Kind of kernel.", "family")]
    dtype: Annotated[str | None, Column("Precision asked for.")]
    shape: Annotated[str | None, Column("The op's input shapes, as recorded.", "shape", format_shape)]
    count: Annotated[float, Column("Launches per step.", "launches")]
    time_us: Annotated[float, Column("Summed time per step, measured.", "time")]
    share: Annotated[float, Column("Part of all kernels' summed time, percent.", "of kernel time")]
    utilization: Annotated[
        float | None, Column("Percent of the roofline: its work's least time over its time.", "% roof")
    ]
    limiter: Annotated[
        str | None, Column("What bounds it: compute, memory, latency (too small to fill the GPU) or link.", "bound by")
    ]
    work_known: bool
    flops: Annotated[float | None, Column("Operations per step; a multiply-add is two.")]
    bytes: Annotated[float | None, Column("Compulsory memory traffic per step.")]
    tflops: Annotated[float | None, Column("Operations over its time, in 1e12 a second.")]
    tbps: Annotated[float | None, Column("Memory traffic over its time, in 1e12 bytes a second.")]
    predicted_us: tuple[float, ...]
    limiters: tuple[str, ...]
    methods: tuple[str, ...]
    tiles: Tiles | None
    predicted_tiles: tuple[Tiles | None, ...]


def build_kernel_times(
    run: MeasuredRun, kernels: pl.DataFrame, predictions: Sequence[Prediction]
) -> tuple[KernelTime, ...]:
    """Build the kernels, longest first.

    Args:
        run: The measured run.
        kernels: The chosen steps' kernels.
        predictions: Predictions that the table has times of.
    """
    steps, targets = run.chosen_steps.height, len(predictions)
    whole = kernels["time_us"].sum() or 1.0
    rows = (
        kernels.lazy()
        .group_by(KERNEL_KEYS)
        .agg(
            *(pl.col(f"time {i}").sum() for i in range(targets)),
            *(pl.col(f"{column} {i}").first() for i in range(targets) for column in ("limiter", "method")),
            pl.col("kernel").first(),
            *(pl.col(column).first() for column in ("tile_m", "tile_n", "waves")),
            split_k=pl.when(~pl.col("split_k").first()).then(1),
            count=pl.len(),
            time=pl.col("time_us").sum(),
            bound=pl.col("bound_us").sum(),
            limiter=pl.col("limiter").first(),
            bounded=pl.col("bound_us").is_not_null().all(),
            worked=pl.col("work_from").is_not_null().all(),
            flops=pl.col("work_flops").sum(),
            bytes=pl.col("work_bytes").sum(),
            counted=pl.col("work_bytes").is_not_null().all(),
        )
        .sort("time", *KERNEL_KEYS, descending=[True, *[False] * len(KERNEL_KEYS)])
        .collect(engine=IN_ORDER)
    )
    there = choose_tiles(run.kernels[rows["kernel"]], run, predictions)
    tiles = [[_build_tiles(row) for row in table.iter_rows(named=True)] for table in (rows, *there)]
    return tuple(
        KernelTime(
            name=row["name"],
            op=row["op"],
            family=row["family"],
            dtype=row["dtype"],
            shape=row["input_dims"],
            count=row["count"] / steps,
            time_us=row["time"] / steps,
            share=100 * row["time"] / whole,
            utilization=100 * row["bound"] / row["time"] if row["bounded"] and row["time"] else None,
            limiter=row["limiter"] if row["bounded"] else None,
            work_known=row["worked"],
            flops=row["flops"] / steps if row["counted"] else None,
            bytes=row["bytes"] / steps if row["counted"] else None,
            tflops=row["flops"] / row["time"] / 1e6 if row["counted"] and row["time"] else None,
            tbps=row["bytes"] / row["time"] / 1e6 if row["counted"] and row["time"] else None,
            predicted_us=tuple(row[f"time {i}"] / steps for i in range(targets)),
            limiters=tuple(row[f"limiter {i}"] for i in range(targets)),
            methods=tuple(row[f"method {i}"] for i in range(targets)),
            tiles=mine,
            predicted_tiles=tuple(predicted),
        )
        for row, mine, *predicted in zip(rows.iter_rows(named=True), *tiles, strict=True)
    )


def _build_tiles(row: Mapping[str, Any]) -> Tiles | None:
    tile_m, *others = (row.get(name) for name in TILE_COLUMNS)
    return None if tile_m is None else Tiles(tile_m, *others)
