"""One run's kernel times on another run's graph, where both ran the same program.

No model of kernels is involved, so what is left is the error of the graph: of what it says happens when kernels take
other times.
"""

from dataclasses import dataclass, replace

import polars as pl

from tracekit.replay.measure import StepTime
from tracekit.replay.run import Run
from tracekit.workload.shares import share

SAME = ("place", "what", "input_dims")


@dataclass(frozen=True, slots=True)
class Transplant:
    """A replay with another run's kernel times.

    Attributes:
        step: The step that it gives.
        expected: The step that the other run measured.
        error_pct: Of the median step.
        matched: Percent of this run's GPU time whose kernel was found in the other run; the rest keeps its own time.
    """

    step: StepTime
    expected: StepTime
    error_pct: float
    matched: float


def transplant(run: Run, other: Run) -> Transplant:
    """Replay a run with the kernel times of another one of the same program.

    Kernels are the same if the same op launched them, or, without ops, if they have the same name; on the same shapes;
    in the same place among the steps, as the same one in order of launch. So kernels may differ in name, as they do
    between GPUs. Waiting for ranks that weren't read, which no graph derives, comes with the kernels; the host stays.

    Args:
        run: The run whose graph is replayed.
        other: The run whose kernels are taken, of one rank as well.
    """
    mine, theirs = _identified(run), _identified(other).rename({"dur_ns": "other_ns", "kept_ns": "other_kept_ns"})
    keys = [*SAME, "occurrence"]
    times = theirs.select(*keys, "other_ns", "other_kept_ns")
    joined = mine.join(times, on=keys, how="left", nulls_equal=True).sort("row")
    kept_ns = joined.select(pl.coalesce("other_kept_ns", "kept_ns")).to_series().to_numpy()
    changed = replace(run, graph=replace(run.graph, kept_ns=kept_ns))
    times_us = (joined.select(pl.coalesce("other_ns", "dur_ns")).to_series() / 1e3).to_numpy()
    step = changed.meter.median(changed.timeline_with(times_us))
    matched = share(joined, "dur_ns", pl.col("other_ns").is_not_null())
    error_pct = 100 * (step.step_time_us / other.measured.step_time_us - 1)
    return Transplant(step, other.measured, error_pct, matched)


def _identified(run: Run) -> pl.DataFrame:
    """The kernels as ``row``, ``dur_ns``, and what is the same in another run."""
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
    return ordered.with_columns(occurrence=pl.int_range(pl.len()).over(SAME))
