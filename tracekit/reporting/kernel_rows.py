"""Build the kernel rows that all sections of a report use."""

from collections.abc import Iterator, Sequence

import polars as pl

from predictors import Batch
from predictors.columns import prepare_kernels
from predictors.tiling import TILE_COLUMNS
from tracekit.parallelism.process_groups import infer_layout
from tracekit.prediction import Prediction
from tracekit.run import MeasuredRun


def predict_on_source(run: MeasuredRun) -> pl.DataFrame:
    """Return each kernel's work, and what the model alone says of it on the source GPU.

    Returns:
        One row per kernel of the kernel table: the work (``law`` that models it, ``work_flops``, ``work_bytes``),
        ``bound_us``, ``limiter`` and the time ``model_us``; the last three are null if the GPU isn't known.
    """
    if run.gpu is not None:
        batch = Batch(run.kernels)
        alone = batch.on(run.gpu).select("bound_us", "limiter", model_us="time_us")
        return batch.get_work(run.gpu).hstack(alone)
    unknown = {"bound_us": pl.Float64, "limiter": pl.String, "model_us": pl.Float64}
    work = prepare_kernels(run.kernels).select("law", "work_flops", "work_bytes")
    return work.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in unknown.items())


def build_kernel_rows(run: MeasuredRun, targets: Sequence[Prediction], on_source: pl.DataFrame) -> pl.DataFrame:
    """Return the chosen steps' kernels with their bound on the source GPU and their predictions.

    Args:
        run: The measured run.
        targets: Its predictions.
        on_source: From :func:`predict_on_source`.

    Returns:
        The kernel table with its row number as ``kernel``, ``time_us``, the columns of ``on_source``, ``waves``, and
        for the i-th target ``time i`` in microseconds, ``limiter i``, ``method i``, and the tiles of products as
        ``tile_m i``, ``tile_n i``, ``split_k i`` and ``waves i``.
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
    tiles = [column for i, found in enumerate(choose_tiles(run, targets)) for column in _number_columns(found, i)]
    return table.with_columns(*on_source, *tiles, waves=waves).filter(run.is_in_chosen_steps)


def choose_tiles(run: MeasuredRun, targets: Sequence[Prediction]) -> Iterator[pl.DataFrame]:
    """Yield the tiles of products on each target; null where products of another size run there."""
    batch = Batch(run.kernels) if targets else None
    for target in targets:
        if batch is not None and _has_traced_products(run, target):
            yield batch.get_tiles(target.target.gpu.gpu)
        else:
            yield pl.DataFrame({name: [None] * run.kernels.height for name in TILE_COLUMNS}, schema=TILE_COLUMNS)


def _has_traced_products(run: MeasuredRun, target: Prediction) -> bool:
    """Return whether the trace's own products run on a target, rather than edited, smaller or larger ones."""
    same_layout = target.layout is None or target.layout == infer_layout(run.program)
    return target.program is run.program and same_layout and target.batch_ratio == 1


def _number_columns(table: pl.DataFrame, i: int) -> list[pl.Series]:
    return [column.alias(f"{column.name} {i}") for column in table]
