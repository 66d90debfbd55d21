"""Files that end too early: which of their steps are whole."""

from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.ingest.correlations import KERNEL_LAUNCHES
from tracekit.messages import Message, traces

NUMBERED_STEP = r"^ProfilerStep#([0-9]{1,18})(?:[^0-9]|$)"
LAUNCH_CALLS = f"{KERNEL_LAUNCHES}|GraphLaunch"
MAX_MISSING_FRACTION = 0.02
"""Largest part of the launches whose kernels may be missing, of the kernels whose launches may be, and of the launches
by which a step may have fewer than those before it. Complete traces lack the kernels of up to about 1 %."""

MAX_SILENT_FRACTION = 0.1
"""Largest part of a step, at its end, in which nothing may be recorded any more in all of the file."""


class WholeSteps(NamedTuple):
    """What of a file that ends too early can be measured.

    Attributes:
        annotations: Named ranges without the marks of the steps that it cut.
        warnings: Which steps were left out.
        is_usable: Whether the steps left are whole; without marks, whether hardly any kernel or launch is missing.
    """

    annotations: pl.DataFrame
    warnings: tuple[Message, ...]
    is_usable: bool


def select_whole_steps(annotations: pl.DataFrame, calls: pl.DataFrame, activities: pl.DataFrame) -> WholeSteps:
    """Leave out the marks of the steps in which launches or kernels are missing.

    Some profilers write events by time, so that the last step lacks launches with their kernels; others all calls
    before all kernels, so that launches lack their kernels.
    """
    launches = calls.filter(pl.col("name").str.contains(LAUNCH_CALLS)).select(
        "ts_ns",
        # A launch without an id may have its kernel.
        lacks=~pl.col("correlation").is_in(activities["correlation"].drop_nulls().implode()).fill_null(value=True),
    )
    called = activities["correlation"].is_in(calls["correlation"].drop_nulls().implode()).fill_null(value=False)
    orphans = activities.select("ts_ns", lacks=~called.cast(pl.Boolean))
    marks = annotations.with_row_index("mark").with_columns(step=pl.col("name").str.extract(NUMBERED_STEP))
    if marks["step"].is_null().all():
        return WholeSteps(annotations, (), _has_nearly_all(launches["lacks"], orphans["lacks"], calls.height > 0))
    last_ns = pl.concat(table.select(pl.col("ts_ns") + pl.col("dur_ns")) for table in (calls, activities)).max().item()
    cut = _find_cut_steps(marks.drop_nulls("step"), launches, orphans, last_ns)
    missing = cut.filter("is_cut")
    kept = marks.join(missing, on="mark", how="anti", maintain_order="left").drop("step", "mark")
    steps = missing["step"].unique(maintain_order=True).to_list()
    said = (traces.STEPS_CUT(steps=steps),) if steps else ()
    return WholeSteps(kept, said, cut.height > missing.height)


def _find_cut_steps(
    marks: pl.DataFrame, launches: pl.DataFrame, orphans: pl.DataFrame, last_ns: int | None
) -> pl.DataFrame:
    """Return the marks in which anything is launched, in order of time, and whether their steps are cut."""
    end = pl.col("ts_ns") + pl.col("dur_ns")
    spans = marks.select("mark", "step", start="ts_ns", end=end).sort("start", "mark")
    steps = pl.concat(
        [spans, _count_within(spans, launches, "launches"), _count_within(spans, orphans, "kernels")], how="horizontal"
    ).filter(pl.col("launches") > 0)
    before = pl.col("launches").cum_sum().shift(fill_value=0) / pl.int_range(pl.len()).clip(1)
    silent = pl.col("end") - pl.lit(last_ns, pl.Int64) > MAX_SILENT_FRACTION * (pl.col("end") - pl.col("start"))
    cut = (
        (pl.col("launches_lack") > MAX_MISSING_FRACTION * pl.col("launches"))
        | (pl.col("kernels_lack") > MAX_MISSING_FRACTION * pl.col("kernels"))
        | (pl.col("launches") < (1 - MAX_MISSING_FRACTION) * before)
        | silent
    )
    return steps.select("mark", "step", is_cut=cut.cum_max())


def _count_within(spans: pl.DataFrame, events: pl.DataFrame, name: str) -> pl.DataFrame:
    """Count the events that begin within each span, and those of them that lack what they belong to."""
    ordered = events.sort("ts_ns")
    lacking = np.concatenate([[0], np.cumsum(ordered["lacks"].to_numpy())])
    at = ordered["ts_ns"].to_numpy()
    first, last = (np.searchsorted(at, spans[edge].to_numpy()) for edge in ("start", "end"))
    return pl.DataFrame({name: last - first, f"{name}_lack": lacking[last] - lacking[first]})


def _has_nearly_all(launches_lack: pl.Series, kernels_lack: pl.Series, has_calls: bool) -> bool:
    """Return whether nearly all launches have their kernels, and nearly all kernels a call."""
    orphans = int(kernels_lack.sum()) if has_calls else 0
    return (
        len(kernels_lack) > 0
        and int(launches_lack.sum()) <= MAX_MISSING_FRACTION * len(launches_lack)
        and orphans <= max(MAX_MISSING_FRACTION * len(kernels_lack), 1)
    )
