"""How far a prediction may lie off because the work itself is only known within a bracket."""

from collections.abc import Callable

import polars as pl

Predict = Callable[[pl.DataFrame], pl.DataFrame]


def widened(kernels: pl.DataFrame, times: pl.DataFrame, predict: Predict) -> pl.DataFrame:
    """``times`` with the intervals of bracketed kernels widened by the times at both ends of the bracket.

    Args:
        kernels: The kernel table; ``work_low`` and ``work_high`` are factors on ``bytes`` and on the ``batch`` of
            products, null where the work isn't bracketed.
        times: What ``predict`` gave for it.
        predict: Kernel table to times.
    """
    bracketed = kernels.with_row_index("row").drop_nulls("work_low")
    if bracketed.is_empty():
        return times
    middle = times["time_us"].gather(bracketed["row"])
    ends = [
        predict(bracketed.drop("row").with_columns(pl.col("bytes", "batch") * pl.col(end)))["time_us"] / middle
        for end in ("work_low", "work_high")
    ]
    factors = pl.DataFrame({"row": bracketed["row"], "low": ends[0], "high": ends[1]}).with_columns(
        least=pl.min_horizontal("low", "high", 1.0), most=pl.max_horizontal("low", "high", 1.0)
    )
    joined = times.with_row_index("row").join(factors, on="row", how="left", maintain_order="left")
    return joined.with_columns(
        low_us=pl.col("low_us") * pl.col("least").fill_null(1.0),
        high_us=pl.col("high_us") * pl.col("most").fill_null(1.0),
    ).select(times.columns)
