"""Kernels by shape, longest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from predictors.tiling import TILE_COLUMNS
from tracekit.prediction import Prediction
from tracekit.reporting.kernel_rows import choose_tiles
from tracekit.run import MeasuredRun

KERNEL_KEYS = ("name", "input_dims", "op", "family", "dtype")
"""Columns whose equal values make launches one kernel."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a matrix product, a layer of experts or attention is cut into blocks.

    Attributes:
        tile_m: Rows of a tile; of attention, queries of a block.
        tile_n: Columns of a tile; of attention, keys of a step; ``None`` if unknown.
        split_k: Parts that k is cut into, of decoding the keys; ``None`` if unknown.
        waves: Blocks over SMs: 1.2 are two rounds, the second of which a fifth of the SMs run; ``None`` if unknown.
        kept_ratio: On a target, how many times as long a product would take with the trace's tile; ``None`` if unknown.
    """

    tile_m: int
    tile_n: int | None
    split_k: int | None
    waves: float | None
    kept_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All launches of one kernel on one shape.

    Attributes:
        name: The kernel's name.
        op: The op that launches it.
        family: Its family.
        dtype: Requested precision.
        shape: The op's input shapes, as recorded.
        count: Launches per step.
        time_us: Summed time per step.
        share: Percent of all kernels' summed time.
        utilization: Roofline bound over time, percent; ``None`` if work or GPU is unknown.
        limiter: The resource that the bound depends on.
        work_known: Whether its work is known.
        flops: Operations of all its launches in a step; ``None`` if the work is unknown.
        bytes: Compulsory memory traffic of all its launches in a step.
        tflops: Operations over its time, in 1e12 a second; of copies and the like 0.
        tbps: Memory traffic over its time, in 1e12 bytes a second.
        predicted_us: Summed time per step on each target, in the report's order of targets.
        limiters: Limiting resource on each target.
        methods: How the time on each target was obtained: measured, transfer, law, scaled or kept.
        tiles: As the kernel's name tells them; ``None`` for others.
        predicted_tiles: On each target, as the law chooses them; ``None`` for kernels that aren't tiled, and where
            kernels of another size run there.
    """

    name: str
    op: str | None
    family: str
    dtype: str | None
    shape: str | None
    count: float
    time_us: float
    share: float
    utilization: float | None
    limiter: str | None
    work_known: bool
    flops: float | None
    bytes: float | None
    tflops: float | None
    tbps: float | None
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
        kernels.group_by(KERNEL_KEYS)
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
