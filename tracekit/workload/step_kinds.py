"""Tell steps of different work apart where their numbers repeat, as those of training and validation do.

Two steps are of one kind if they launch about as many kernels of each family, and these take about as long. The
optimizer's work and collectives don't count: with gradients accumulated, they are in every fourth step, say.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Floats, Ints
from tracekit.rules import NO_RULES, Rule, RuleNames
from tracekit.trace import RankTrace
from tracekit.workload import phases
from tracekit.workload.classify import classify_activity

RULE = Rule(
    "step-kinds",
    "Where numbers of steps repeat, steps of other work count apart: measured are those that train, or take most time.",
    "PyTorch Lightning numbers steps of training and of validation each from 0: without the rule they count together.",
)
MIN_SHARED_KERNELS = 0.7
"""Of the kernels of two steps of one kind. A forward pass alone, as in validation, has about a third of a training
step's."""
MAX_TIME_RATIO = 2.0
"""Of two steps of one kind: inputs of other lengths change the time of the same kernels."""
OTHER_FAMILIES = ("optimizer", "collective", "memcpy", "memset")
USUAL_KIND = 0


def number_kinds(
    steps: pl.DataFrame, of_launch: pl.Series, trace: RankTrace, without: RuleNames = NO_RULES
) -> pl.Series:
    """Number the kinds of steps whose numbers repeat: 0 for the usual kind; null for all steps otherwise.

    Args:
        steps: The marked steps, with ``step`` and ``label``.
        of_launch: The step of each call of the trace.
        trace: What the rank recorded.
        without: Inference rules that are off.
    """
    nothing, is_on = pl.Series("work", [None] * steps.height, pl.Int64), RULE.is_on(without)
    if not steps["label"].drop_nulls().is_duplicated().any():
        return nothing
    if not is_on:
        return nothing.fill_null(USUAL_KIND)
    launched = _tabulate_launches(of_launch, trace)
    own = launched.filter(~pl.col("family").is_in(OTHER_FAMILIES) & (pl.col("phase") != phases.OPTIMIZER))
    time_ns = _sum_by_step(steps, own, pl.col("dur_ns").sum())
    trains = _sum_by_step(steps, launched, (pl.col("phase") != phases.FORWARD).sum()) > 0
    kind = _cluster(_count_by_family(steps, own), time_ns)
    order = np.lexsort((-np.bincount(kind, time_ns), np.bincount(kind, trains) == 0))
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return pl.Series("work", place[kind], pl.Int64)


def _tabulate_launches(of_launch: pl.Series, trace: RankTrace) -> pl.DataFrame:
    """Tabulate the GPU's work in each step: ``family``, ``phase`` (forward where none is known) and ``dur_ns``."""
    phase = phases.find_enclosing_phases(trace.calls, trace.ops, trace.annotations).fill_null(phases.FORWARD)
    calls = trace.calls.select("correlation").with_columns(step=of_launch, phase=phase).drop_nulls("step")
    ran = trace.activities.select("correlation", "kind", "name", "dur_ns").join(calls, on="correlation")
    names = ran.select("kind", "name").unique(maintain_order=True)
    family = [classify_activity(kind, name, None) for kind, name in names.iter_rows()]
    return ran.join(names.with_columns(family=pl.Series(family, dtype=pl.String)), on=["kind", "name"])


def _count_by_family(steps: pl.DataFrame, launched: pl.DataFrame) -> Floats:
    """Count each step's kernels by family: a row for each step, a column for each family."""
    if launched.is_empty():
        return np.zeros((steps.height, 1))
    names = launched["family"].unique().sort()
    row = launched["step"].replace_strict(steps["step"], range(steps.height), return_dtype=pl.Int64).to_numpy()
    column = launched["family"].replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    counts = np.bincount(row * len(names) + column, minlength=steps.height * len(names))
    return counts.reshape(steps.height, len(names)).astype(np.float64)


def _sum_by_step(steps: pl.DataFrame, launched: pl.DataFrame, value: pl.Expr) -> Floats:
    """Sum a value over what each step launched, 0 where it launched nothing."""
    found = steps.select("step").join(
        launched.group_by("step").agg(value=value), on="step", how="left", maintain_order="left"
    )
    return found["value"].cast(pl.Float64).fill_null(0.0).to_numpy()


def _cluster(counts: Floats, time_ns: Floats) -> Ints:
    """Number the kinds of steps, each by the first step that is like none before."""
    kind = np.full(time_ns.size, -1, dtype=np.int64)
    while (left := np.flatnonzero(kind < 0)).size:
        first = left[0]
        both = np.minimum(counts[left], counts[first]).sum(axis=1)
        either = np.maximum(counts[left], counts[first]).sum(axis=1)
        shorter, longer = np.minimum(time_ns[left], time_ns[first]), np.maximum(time_ns[left], time_ns[first])
        alike = (both >= MIN_SHARED_KERNELS * either) & (longer <= MAX_TIME_RATIO * shorter)
        kind[left[alike]] = kind.max() + 1
    return kind
