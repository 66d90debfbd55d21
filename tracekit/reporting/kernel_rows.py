"""Build the kernel rows that all sections of a report use."""

from collections.abc import Sequence

import polars as pl

from predictors import Batch, Gpu
from predictors.columns import prepare_kernels
from predictors.model import TILE_COLUMNS
from tracekit.parallelism.layout import LayoutRequest
from tracekit.parallelism.process_groups import infer_layout_if_needed
from tracekit.prediction import Prediction
from tracekit.run import MeasuredRun

RATES = ("compute", "memory")
"""What a bound may depend on."""


def predict_on_source(run: MeasuredRun) -> pl.DataFrame:
    """Return each kernel's work, and what the model alone says of it on the source GPU; see :func:`predict_alone`."""
    return predict_alone(run.kernels, run.gpu)


def predict_alone(kernels: pl.DataFrame, gpu: Gpu | None) -> pl.DataFrame:
    """Return each kernel's work, and what the model alone says of it on the GPU that it ran on.

    Returns:
        One row per kernel of the kernel table: the work (``law`` that models it, ``work_flops``, ``work_bytes``),
        ``bound_us``, ``limiter`` (latency or a link where these take most of the time, else what the bound depends on),
        the time ``model_us``, and ``power_w``, the board's power in the measured time; the last four are null if the
        GPU isn't known.
    """
    if gpu is not None:
        batch = Batch(kernels)
        bound_by = batch.get_bound_limiters(gpu)
        told = pl.when(pl.col("limiter").is_in(RATES)).then(bound_by).otherwise("limiter").alias("limiter")
        alone = batch.on(gpu).select("bound_us", told, model_us="time_us")
        power_w = batch.predict_power_w(gpu, kernels["dur_ns"] / 1e3)
        return batch.get_work(gpu).hstack([*alone, power_w])
    unknown = {"bound_us": pl.Float64, "limiter": pl.String, "model_us": pl.Float64, "power_w": pl.Float64}
    work = prepare_kernels(kernels).select("law", "work_flops", "work_bytes")
    return work.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in unknown.items())


def build_kernel_rows(run: MeasuredRun, targets: Sequence[Prediction], on_source: pl.DataFrame) -> pl.DataFrame:
    """Return the chosen steps' kernels with their bound on the source GPU and their predictions.

    ``on_source`` is from :func:`predict_on_source`.

    Returns:
        The kernel table with its row number as ``kernel``, ``time_us``, the columns of ``on_source``, ``waves``,
        ``runs_as``, null, and for the i-th target ``time i`` in microseconds, ``limiter i`` and ``method i``.
    """
    predicted = {
        f"{name} {i}": target.kernels[column]
        for i, target in enumerate(targets)
        for name, column in (("time", "time_us"), ("limiter", "limiter"), ("method", "method"))
    }
    table = run.kernels.with_columns(
        kernel=pl.int_range(pl.len(), dtype=pl.Int64), time_us=pl.col("dur_ns") / 1e3, **predicted
    )
    waves = pl.col("blocks") / run.gpu.sms if run.gpu else pl.lit(None, pl.Float64)
    return table.with_columns(*on_source, waves=waves, runs_as=pl.lit(None, pl.String)).filter(run.is_in_chosen_steps)


def choose_tiles(kernels: pl.DataFrame, run: MeasuredRun, targets: Sequence[Prediction]) -> list[pl.DataFrame]:
    """Return the tiles of some of a run's products on each target; null where products of another size run there."""
    if not targets:
        return []
    batch = Batch(kernels)
    unknown = pl.DataFrame({name: [None] * kernels.height for name in TILE_COLUMNS}, schema=TILE_COLUMNS)
    as_traced = find_as_traced(run, targets)
    return [
        batch.get_tiles(one.target.gpu.gpu) if is_same else unknown
        for one, is_same in zip(targets, as_traced, strict=True)
    ]


def find_as_traced(run: MeasuredRun, targets: Sequence[Prediction]) -> list[bool]:
    """Return for each target whether kernels of the traced sizes run there: in the same layout, batch and program."""
    layout = infer_layout_if_needed(run.program, LayoutRequest()) if targets else None
    return [one.program is run.program and one.layout in (None, layout) and one.batch_ratio == 1 for one in targets]
