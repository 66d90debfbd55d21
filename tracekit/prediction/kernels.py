"""The kernels of a run in one layout, predicted on one GPU after the other."""

from collections.abc import Mapping

import polars as pl

from predictors import Batch, Gpu
from tracekit.prediction.bracket import at_ends, widened


class Kernels:
    """Kernels to be predicted; what all GPUs have in common is worked out once.

    Args:
        table: The kernel table with ``measured_us``.
        source_gpu: Where it was measured; None if that isn't known.
    """

    def __init__(self, table: pl.DataFrame, source_gpu: Gpu | None) -> None:
        self.table = table
        self._batch = Batch(table, source_gpu=source_gpu)
        low, high = at_ends(table)
        self._bracketed = low["row"]
        self._ends = Batch(low, source_gpu=source_gpu), Batch(high, source_gpu=source_gpu)

    def on(self, gpu: Gpu, calibrations: Mapping[Gpu, pl.DataFrame]) -> pl.DataFrame:
        """Their times on a GPU, as ``predictors.predict`` gives them; intervals hold what is open about their work.

        Args:
            gpu: The target.
            calibrations: Kernels that were measured on GPUs.
        """
        times = self._batch.on(gpu, calibrations)
        if self._bracketed.is_empty():
            return times
        low, high = (end.on(gpu, calibrations)["time_us"] for end in self._ends)
        return widened(times, self._bracketed, (low, high))
