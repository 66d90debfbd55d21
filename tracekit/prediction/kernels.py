"""The kernels of a run in one layout, predicted on one GPU after the other."""

from collections.abc import Mapping

import polars as pl

from predictors import Batch, Gpu
from tracekit.prediction.bracket import at_ends, widened

ENDS = ("low", "high")


class Kernels:
    """Kernels to be predicted; what all GPUs have in common is worked out once.

    Args:
        table: The kernel table with ``measured_us``, whether that is ``derived``, and ``most``, the factor up to which
            it may be longer.
        source_gpu: Where it was measured; None if that isn't known.
    """

    def __init__(self, table: pl.DataFrame, source_gpu: Gpu | None) -> None:
        self.table = table
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
            times = self._doubted(times, self._by_law.on(gpu, calibrations))
        if self._bracketed.is_empty():
            return times
        low, high = (end.on(gpu, calibrations)["time_us"] for end in self._ends)
        return widened(times, self._bracketed, (low, high))

    def _doubted(self, times: pl.DataFrame, by_law: pl.DataFrame) -> pl.DataFrame:
        """``times`` with an interval for those that look measured and are derived: as wide as that of the law alone."""
        widths = by_law.select(
            row=self._derived, low=pl.col("low_us") / pl.col("time_us"), high=pl.col("high_us") / pl.col("time_us")
        )
        joined = times.with_row_index("row").join(widths, on="row", how="left", maintain_order="left")
        derived = (pl.col("method") == "measured") & pl.col("low").is_not_null()
        ends = {end: pl.when(derived).then(pl.col("time_us") * pl.col(end)).otherwise(f"{end}_us") for end in ENDS}
        longest = pl.max_horizontal(ends["high"], pl.col("time_us") * pl.lit(self.table["most"]))
        return joined.with_columns(
            low_us=ends["low"],
            high_us=longest,
            method=pl.when(derived).then(pl.lit("transfer")).otherwise("method"),
        ).select(times.columns)
