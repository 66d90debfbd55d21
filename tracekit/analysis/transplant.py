"""Replay one run's graph with the kernel times of another run of the same program.

No kernel model is involved, so the remaining error is that of the graph.
"""

from dataclasses import dataclass, replace

import polars as pl

from tracekit.replay.step_time import StepTime
from tracekit.run import MeasuredRun
from tracekit.workload.step_kinds import compute_time_share

MATCH_COLUMNS = ("place", "what", "input_dims")


@dataclass(frozen=True, slots=True)
class Transplant:
    """A replay with another run's kernel times.

    Attributes:
        step: The replayed step.
        expected: The step that the other run measured.
        error_pct: Error of the median step.
        matched_pct: Percent of this run's GPU time whose kernel was found in the other run; other kernels keep their
            own times.
    """

    step: StepTime
    expected: StepTime
    error_pct: float
    matched_pct: float


def transplant(run: MeasuredRun, other: MeasuredRun) -> Transplant:
    """Replay a run with the kernel times of another run of the same program.

    Kernels match if the same op launched them (without ops: if they have the same name) on the same shapes, at the
    same place among the steps and in the same order of launch. Kernels may therefore differ in name, as they do
    between GPUs. Waiting for ranks that weren't read, which the graph can't derive, is taken over with the kernels.
    The host's times stay.

    Args:
        run: The run whose graph is replayed.
        other: The run whose kernel times are used; one rank is enough.
    """
    mine, theirs = (
        _identify_kernels(run),
        _identify_kernels(other).rename({"dur_ns": "other_ns", "kept_ns": "other_kept_ns"}),
    )
    keys = [*MATCH_COLUMNS, "occurrence"]
    times = theirs.select(*keys, "other_ns", "other_kept_ns")
    joined = mine.join(times, on=keys, how="left", nulls_equal=True).sort("row")
    kept_ns = joined.select(pl.coalesce("other_kept_ns", "kept_ns")).to_series().to_numpy()
    changed = replace(run.program, graph=replace(run.graph, kept_ns=kept_ns))
    times_us = (joined.select(pl.coalesce("other_ns", "dur_ns")).to_series() / 1e3).to_numpy()
    step = changed.step_timer.compute_median(changed.replay_timeline(times_us))
    matched = compute_time_share(joined, "dur_ns", pl.col("other_ns").is_not_null())
    error_pct = 100 * (step.step_time_us / other.measured_step.step_time_us - 1)
    return Transplant(step, other.measured_step, error_pct, matched)


def _identify_kernels(run: MeasuredRun) -> pl.DataFrame:
    """Tabulate the kernels: ``row``, ``dur_ns``, and the columns that identify them in another run."""
    steps = run.steps["step"].unique(maintain_order=True)
    table = run.kernels.select(
        row=pl.int_range(pl.len()),
        dur_ns="dur_ns",
        kept_ns=run.graph.kept_ns,
        input_dims="input_dims",
        launched=pl.coalesce("call", "ts_ns"),
        place=pl.col("step").replace_strict(steps, pl.Series(range(len(steps)), dtype=pl.Int64), default=None),
        what=pl.coalesce("op", "name"),
    )
    ordered = table.sort("launched", "row")
    return ordered.with_columns(occurrence=pl.int_range(pl.len()).over(MATCH_COLUMNS))
