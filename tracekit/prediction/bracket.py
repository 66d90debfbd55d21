"""How far a prediction may lie off because the work itself is only known within a bracket."""

import polars as pl

ENDS = ("work_low", "work_high")


def at_ends(kernels: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The kernels whose work is bracketed, with the work of either end, and their ``row``.

    Args:
        kernels: The kernel table; ``work_low`` and ``work_high`` are factors on ``bytes`` and on the ``batch`` of
            GEMMs, null where the work isn't bracketed.
    """
    bracketed = kernels.with_row_index("row").drop_nulls("work_low")
    low, high = (bracketed.with_columns(pl.col("bytes", "batch") * pl.col(end)) for end in ENDS)
    return low, high


def widened(times: pl.DataFrame, row: pl.Series, ends: tuple[pl.Series, pl.Series]) -> pl.DataFrame:
    """``times`` with the intervals of bracketed kernels widened by the times at both ends of the bracket.

    Args:
        times: Predicted for all kernels.
        row: Where the bracketed ones are among them.
        ends: ``time_us`` of these at either end.
    """
    if row.is_empty():
        return times
    middle = times["time_us"].gather(row)
    factors = pl.DataFrame({"row": row, "low": ends[0] / middle, "high": ends[1] / middle}).select(
        "row", least=pl.min_horizontal("low", "high", 1.0), most=pl.max_horizontal("low", "high", 1.0)
    )
    joined = times.with_row_index("row").join(factors, on="row", how="left", maintain_order="left")
    return joined.with_columns(
        low_us=pl.col("low_us") * pl.col("least").fill_null(1.0),
        high_us=pl.col("high_us") * pl.col("most").fill_null(1.0),
    ).select(times.columns)
