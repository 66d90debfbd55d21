"""Treat kernels of unknown work: refuse changes that would need it, widen intervals where it lies between bounds."""

import polars as pl

from tracekit.format import shorten
from tracekit.messages import Template
from tracekit.parallelism.layout import LayoutError
from tracekit.workload.step_kinds import compute_time_share

WORK_BOUNDS = ("work_low", "work_high")
"""Columns of the kernel table: factors on ``BOUNDED`` columns."""
BOUNDED = ("bytes", "host_bytes", "serial_clocks", "batch")
"""Traffic and clocks, and the ``batch`` of GEMMs."""

MAX_UNKNOWN_PCT = 5.0
"""Percent of GPU time that may stay unscaled because its work is unknown: the largest error that this can cause."""


def check_work_known(computed: pl.DataFrame, work_unknown: Template, shapes_unknown: Template) -> None:
    """Raise an error where too much of the kernels' work is unknown for a change.

    Args:
        computed: The kernels that would change.
        work_unknown: The message about kernels of unknown work.
        shapes_unknown: The message where no shapes were recorded.

    Raises:
        LayoutError: Over ``MAX_UNKNOWN_PCT`` percent of their time has unknown work.
    """
    unknown = compute_time_share(computed, "dur_ns", pl.col("work_from").is_null())
    if unknown > MAX_UNKNOWN_PCT:
        if computed["input_dims"].is_null().all():
            raise LayoutError(shapes_unknown(time_pct=unknown))
        of = computed.filter(pl.col("work_from").is_null()).group_by(pl.coalesce("op", "name").alias("of"))
        largest = of.agg(pl.col("dur_ns").sum()).sort("dur_ns", "of").row(-1, named=True)["of"]
        raise LayoutError(work_unknown(time_pct=unknown, largest=shorten(largest, 60)))


def apply_work_bounds(kernels: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the kernels with bounded work, once with the least and once with the most work, and their ``row``.

    Args:
        kernels: The kernel table; ``work_low`` and ``work_high`` are null where the work is known exactly.
    """
    bracketed = kernels.with_row_index("row").drop_nulls("work_low")
    low, high = (bracketed.with_columns(pl.col(BOUNDED) * pl.col(end)) for end in WORK_BOUNDS)
    return low, high


def widen_intervals(times: pl.DataFrame, row: pl.Series, bound_us: tuple[pl.Series, pl.Series]) -> pl.DataFrame:
    """Widen the intervals of kernels with bounded work by their times at both bounds.

    Args:
        times: Predicted times of all kernels.
        row: Rows of the bounded kernels.
        bound_us: ``time_us`` of these kernels with the least and with the most work.
    """
    if row.is_empty():
        return times
    middle = times["time_us"].gather(row)
    factors = pl.DataFrame({"row": row, "low": bound_us[0] / middle, "high": bound_us[1] / middle}).select(
        "row", least=pl.min_horizontal("low", "high", 1.0), most=pl.max_horizontal("low", "high", 1.0)
    )
    joined = times.with_row_index("row").join(factors, on="row", how="left", maintain_order="left")
    return joined.with_columns(
        low_us=pl.col("low_us") * pl.col("least").fill_null(1.0),
        high_us=pl.col("high_us") * pl.col("most").fill_null(1.0),
    ).select(times.columns)
