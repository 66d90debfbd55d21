"""The kernels of a run in one layout, predicted on one GPU after the other."""

from collections.abc import Mapping

import polars as pl

from predictors import Batch, Gpu
from tracekit.prediction.bracket import at_ends, widened


class Kernels:
    """Kernels to be predicted; what all GPUs have in common is worked out once.

    Args:
        table: The kernel table with ``measured_us``, whether that is ``derived``, and ``most``, the factor up to which
            it may be longer.
        source_gpu: Where it was measured; None if that isn't known.
    """

    def __init__(self, table: pl.DataFrame, source_gpu: Gpu | None) -> None:
        self.table = table
        self._source = source_gpu
        self._batch = Batch(table, source_gpu=source_gpu)
        low, high = at_ends(table)
        self._bracketed = low["row"]
        self._ends = Batch(low, source_gpu=source_gpu), Batch(high, source_gpu=source_gpu)
        self._derived = table["derived"].arg_true()
        self._by_law = Batch(table[self._derived].drop("measured_us"), source_gpu=source_gpu)

    def on(self, gpu: Gpu, calibrations: Mapping[Gpu, pl.DataFrame]) -> pl.DataFrame:
        """Their times on a GPU, as ``predictors.predict`` gives them; intervals hold what is open about their work.

        Args:
            gpu: The target.
            calibrations: Kernels that were measured on GPUs.
        """
        times = self._batch.on(gpu, calibrations)
        if not self._derived.is_empty():
            times = self._doubted(times, self._by_law.on(self._source or gpu, calibrations))
        if self._bracketed.is_empty():
            return times
        low, high = (end.on(gpu, calibrations)["time_us"] for end in self._ends)
        return widened(times, self._bracketed, (low, high))

    def _doubted(self, times: pl.DataFrame, by_law: pl.DataFrame) -> pl.DataFrame:
        """``times`` in which those that look measured and are derived are as open as the law that derived them.

        Args:
            times: On the target.
            by_law: Of the derived kernels, by the law alone on the GPU that they were derived for.
        """
        widths = by_law.select(
            row=self._derived, low=(pl.col("time_us") / pl.col("low_us")), high=pl.col("high_us") / pl.col("time_us")
        )
        joined = times.with_row_index("row").join(widths, on="row", how="left", maintain_order="left")
        time = pl.col("time_us")
        low = time * (-_together(time / pl.col("low_us"), pl.col("low"))).exp()
        high = time * _together(pl.col("high_us") / time, pl.col("high")).exp()
        derived = pl.col("low").is_not_null() & (pl.col("method") != "law")
        longest = pl.max_horizontal(pl.when(derived).then(high).otherwise("high_us"), time * pl.lit(self.table["most"]))
        return joined.with_columns(
            low_us=pl.when(derived).then(low).otherwise("low_us"),
            high_us=longest,
            method=pl.when(derived & (pl.col("method") == "measured")).then(pl.lit("transfer")).otherwise("method"),
        ).select(times.columns)


def _together(*factors: pl.Expr) -> pl.Expr:
    """Independent errors, by which a time may be off as these factors say, as a logarithm."""
    return pl.sum_horizontal(factor.log() ** 2 for factor in factors).sqrt()
