"""Tables with a row per launched kernel, for other programs."""

from collections.abc import Sequence

import polars as pl

from tracekit.escape import write_csv
from tracekit.prediction import Prediction
from tracekit.render.table_files import to_parquet
from tracekit.run import MeasuredRun


def encode_launches(run: MeasuredRun, targets: Sequence[Prediction], form: str) -> bytes:
    """Return one row per launched kernel: ``tracekit.schema.KERNELS`` and the predictions.

    Args:
        run: The measured run.
        targets: The predictions from this run; each adds its ``time_us``, ``low_us``, ``high_us``, ``limiter`` and
            ``method``.
        form: ``"parquet"`` or ``"csv"``.
    """
    predicted = [
        target.kernels[column].alias(f"{target.label} {column}")
        for target in targets
        for column in ("time_us", "low_us", "high_us", "limiter", "method")
    ]
    table: pl.DataFrame = run.kernels.with_columns(predicted)
    return to_parquet(table) if form == "parquet" else write_csv(table).encode()
