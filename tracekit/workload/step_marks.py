"""Read the profiler's step marks: each occurrence of a mark is a step, whatever number it has.

Lightning numbers the steps of training and of validation each from 0, and a schedule that is started again begins with
its first number, so that a number is a name, which several steps may have::

    recorded   |0 |1 |2 ||0|1|2||3 |4 |      training, validation, training
    numbered   |0 |1 |2 ||3|4|5||6 |7 |      as numbers repeat; else as recorded
"""

import polars as pl

from tracekit.ingest.cut_files import NUMBERED_STEP
from tracekit.trace import RankTrace

MAX_SHARED_FRACTION = 0.5
"""Part of a mark's time that another mark of the same number covers, up to which both are steps of their own; beyond,
several threads marked one step. Clocks round the edges of marks that follow each other."""
THREAD = ("pid", "tid")


def find_marked_steps(trace: RankTrace) -> pl.DataFrame:
    """Find the steps that the profiler marked, in order of start; of those that start together the longest first.

    Returns:
        ``step``, the recorded number, or if numbers repeat the place in time; ``label``, the recorded number;
        ``start_ns``, ``end_ns``, ``pid``, ``tid``; and ``begins_at_mark``, whether the step doesn't follow the one
        before, as unrecorded ones lie between.
    """
    marks = trace.annotations.with_columns(
        label=pl.col("name").str.extract(NUMBERED_STEP).cast(pl.Int64, strict=False),
        end_ns=pl.col("ts_ns") + pl.col("dur_ns"),
    )
    found = _merge_threads(marks.drop_nulls("label"))
    number = pl.int_range(pl.len(), dtype=pl.Int64) if found["label"].is_duplicated().any() else pl.col("label")
    follows = pl.col("label") == pl.col("label").shift(1) + 1
    return found.select(
        number.alias("step"), "label", "start_ns", "end_ns", *THREAD, begins_at_mark=~follows.fill_null(value=False)
    )


def _merge_threads(marks: pl.DataFrame) -> pl.DataFrame:
    """Merge marks of one step by several threads; drop those of another number within a step of the main thread.

    The main thread has most marks.
    """
    counts = marks.group_by(THREAD).agg(pl.len(), pl.col("ts_ns").min())
    main = counts.sort("len", "ts_ns", *THREAD, descending=[True, False, False, False]).head(1).select(THREAD)
    in_main = marks.join(main.with_columns(is_main=True), on=THREAD, how="left", nulls_equal=True).with_columns(
        pl.col("is_main").fill_null(value=False)
    )
    in_time = in_main.sort("label", "ts_ns", "dur_ns", descending=[False, False, True])
    shared = pl.col("end_ns").cum_max().shift(1).over("label") - pl.col("ts_ns")
    is_new = (shared <= MAX_SHARED_FRACTION * pl.col("dur_ns")).fill_null(value=True)
    merged = (
        in_time.with_columns(occurrence=is_new.cum_sum().over("label"))
        .group_by("label", "occurrence")
        .agg(
            pl.col("ts_ns").min().alias("start_ns"),
            pl.col("end_ns").max(),
            pl.col(THREAD).sort_by("is_main", descending=True, maintain_order=True).first(),
            pl.col("is_main").any(),
        )
        .sort("start_ns", "end_ns", "label", descending=[False, True, False])
    )
    return _drop_marks_within(merged)


def _drop_marks_within(found: pl.DataFrame) -> pl.DataFrame:
    """Drop what only other threads marked, where it overlaps steps of the main thread."""
    main = found.filter("is_main")
    begun = main["start_ns"].sort().search_sorted(found["end_ns"], side="left")
    ended = main["end_ns"].sort().search_sorted(found["start_ns"], side="right")
    return found.filter(pl.col("is_main") | (begun.cast(pl.Int64) <= ended.cast(pl.Int64)))
