"""Tell steps of different work apart, and find where a first step begins that waits for work before it.

Two steps are of one kind if they launch about as many kernels of each family, and these take about as long. The
optimizer's work and collectives don't count: with gradients accumulated, they are in every fourth step, say.
"""

import numpy as np
import polars as pl

from tracekit.arrays import NO_NUMBER, Floats, Ints, is_unique, make_nulls, number_pairs
from tracekit.rules import NO_RULES, Rule, RuleNames
from tracekit.trace import RankTrace
from tracekit.workload import module_paths
from tracekit.workload.op_work import classify_activity

STEP_KINDS_RULE = Rule(
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

    The marked steps have ``step`` and ``label``; ``of_launch`` is the step of each call of the trace.
    """
    nothing = make_nulls("work", steps.height)
    if is_unique(steps["label"]):
        return nothing
    if not STEP_KINDS_RULE.is_on(without):
        return nothing.fill_null(USUAL_KIND)
    launched = _tabulate_launches(of_launch, trace)
    own = launched.filter(~pl.col("family").is_in(OTHER_FAMILIES) & (pl.col("phase") != module_paths.OPTIMIZER))
    time_ns = _sum_by_step(steps, own, pl.col("dur_ns").sum())
    trains = _sum_by_step(steps, launched, (pl.col("phase") != module_paths.FORWARD).sum()) > 0
    kind = _cluster(_count_by_family(steps, own), time_ns)
    order = np.lexsort((-np.bincount(kind, time_ns), np.bincount(kind, trains) == 0))
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return pl.Series("work", place[kind], pl.Int64)


def _tabulate_launches(of_launch: pl.Series, trace: RankTrace) -> pl.DataFrame:
    """Tabulate the GPU's work in each step: ``family``, ``phase`` (forward where none is known) and ``dur_ns``."""
    phase = module_paths.find_enclosing_phases(trace.calls, trace.ops, trace.annotations).fill_null(
        module_paths.FORWARD
    )
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


BUSY_START_RULE = Rule(
    "busy-start",
    "A first step begins at the first kernel of its stream that starts long after its launch returned.",
    "vllm_piecewise_graph_execution (149 of 308 ms), vllm_decode_full_graph (7.8 of 19 ms), and SGLang's Qwen3 on an "
    "MI300X, where a copy waits for 463 of 474 ms.",
)
"""The first kernel of such a trace starts long after its launch call returned, and the GPU does nothing else. Its work
before that isn't recorded, and would stay as a constant in every prediction::

    CPU   |launch 1|launch 2|launch 3| ...
    GPU    ....... work from before the recording .......|= kernel 1 =|= kernel 2 =| ...
                                                         ^ the step begins here
"""
MIN_WAIT_NS = 1_000_000
MIN_WAIT_FRACTION = 0.05
"""Shorter waits, absolute or as a fraction of the GPU's recorded time, are launch latency or a first launch's load."""
MAX_EARLIER_FRACTION = 0.01
"""Largest part of the GPU's work that may have run before, on streams that weren't busy."""


def find_busy_start(trace: RankTrace, without: RuleNames, since_ns: int | None = None) -> tuple[int, int] | None:
    """Return the start of the delayed kernel, and how long after its launch, and after all earlier work, that is.

    Kernels count from ``since_ns``, the start of the first step, or if ``None`` from the trace's first activity. The
    result is ``None`` without such a wait, or if the rule is off.
    """
    if not BUSY_START_RULE.is_on(without) or trace.activities.is_empty():
        return None
    start, length = (trace.activities[name].to_numpy() for name in ("ts_ns", "dur_ns"))
    (stream,) = number_pairs((trace.activities,), "device", "stream")
    earlier = (np.cumsum(length) - length) / max(length.sum(), 1)
    first = np.unique(stream, return_index=True)[1]
    rows = first[(trace.launches.row[first] >= 0) & (earlier[first] <= MAX_EARLIER_FRACTION)]
    call, until = trace.launches.row[rows], start + length
    called = trace.calls["ts_ns"].to_numpy()[call]
    ended = called + trace.calls["dur_ns"].to_numpy()[call]
    busy_until = np.maximum.accumulate(np.append(NO_NUMBER, until))[rows]
    waited = start[rows] - np.maximum(ended, busy_until)
    long = waited > np.maximum(MIN_WAIT_NS, MIN_WAIT_FRACTION * (until.max() - ended))
    found = np.flatnonzero(long & (called >= (NO_NUMBER if since_ns is None else since_ns)))
    if not found.size:
        return None
    last = found[start[rows[found]].argmax()]
    return int(start[rows[last]]), int(waited[last])


def compute_time_share(table: pl.DataFrame, time: str, rows: pl.Expr) -> float:
    """Compute the percentage of the column ``time`` that falls on ``rows``; 0 if the total is 0."""
    part = pl.col(time).filter(rows).sum() / pl.col(time).sum()
    return float(table.select(100 * part.fill_nan(0.0)).item()) if table.height else 0.0


def compute_time_shares(table: pl.DataFrame, time: str, *parts: pl.Expr) -> list[float]:
    """Compute the percentages of the column ``time`` that fall on ``parts``, which partition the rows.

    They add up to 100 even without time: then all rows count alike, and an empty table counts as the last part.
    """
    if table.is_empty():
        return [*(0.0 for _ in parts[1:]), 100.0]
    weight = pl.col(time) if table[time].sum() else pl.lit(1)
    sums = (pl.when(part).then(weight).otherwise(0).sum().alias(str(number)) for number, part in enumerate(parts))
    found = map(float, table.select(sums).row(0))
    total = float(table[time].sum() or table.height)
    return [100 * one / total for one in found]
