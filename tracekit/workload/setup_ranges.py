"""Named ranges that prepare a run, and what of a trace without marks lies between them.

::

    |init_model|  |load_weights|  |warmup|  |benchmark_loop|
                                            ^ the step
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.ingest.nesting import select_outermost
from tracekit.rules import Rule, RuleNames
from tracekit.trace import RankTrace
from tracekit.workload.launched_work import LaunchedWork

RULE = Rule(
    "setup-ranges",
    "Ranges named init, load or warm-up are no steps, and what marks no steps begins behind them.",
    "nsys of a course's 2.7B transformer (A100): ranges init_model, warmup and benchmark_loop, 38.1 s without the "
    "rule, of which 2.5 s are measured.",
)
_WARM_UP = r"warm(?:ing)?[ _-]?up"
_WORDS = rf"__init__|init|initiali[sz](?:e|ing|ation)|load|loading|set[ _-]?up|{_WARM_UP}"
SETUP_NAME = rf"(?i)(?:^|[^a-z])(?:{_WORDS})(?:$|[^a-z])"
_NO_SETUP_NAME = r"(?i)load[ _-]?balanc"
MIN_MEASURED_FRACTION = 0.9
"""Least part of the work behind the preparation that a single range must hold to be the step."""

MIN_TRACE_FRACTION = 0.1
"""Least part of the work outside of the preparation that the stretch must hold: what follows may clean up."""


class MeasuredStretch(NamedTuple):
    """What of a trace isn't preparation.

    Attributes:
        start_ns: Its begin on the host.
        end_ns: Its end.
        left_out: Names of the ranges before and after it.
        name: The range that it is; ``None`` if no range holds nearly all of its work.
    """

    start_ns: int
    end_ns: int
    left_out: tuple[str, ...]
    name: str | None


def is_setup() -> pl.Expr:
    """Return whether the name of a range says that it prepares a run."""
    name = pl.col("name").str
    return name.contains(SETUP_NAME) & ~name.contains(_NO_SETUP_NAME)


def find_setup_ranges(trace: RankTrace) -> pl.DataFrame:
    """Find the ranges that prepare a run: they lie in no other, and only warm-ups may repeat."""
    outermost = select_outermost(trace.annotations.filter(pl.col("dur_ns") > 0), "pid", "tid").filter(is_setup())
    return outermost.filter((pl.len().over("name") == 1) | pl.col("name").str.contains(rf"(?i){_WARM_UP}"))


def find_measured_stretch(trace: RankTrace, without: RuleNames) -> MeasuredStretch | None:
    """Find what follows the ranges of preparation; ``None`` without such ranges.

    It is the last stretch behind one of them, or before the first, that launches more than little GPU work.
    """
    if not RULE.is_on(without):
        return None
    setup = find_setup_ranges(trace)
    work = LaunchedWork.from_trace(trace)
    if setup.is_empty() or not work.total_ns:
        return None
    starts, ends = _list_stretches(setup, trace)
    launched = work.measure(starts, ends)
    last = int(np.flatnonzero(launched >= MIN_TRACE_FRACTION * launched.sum())[-1])
    if not launched[last]:
        return None
    start, end = int(starts[last]), int(ends[last])
    name = None
    ranges = trace.annotations.filter(pl.col("ts_ns") >= start, pl.col("ts_ns") + pl.col("dur_ns") <= end, ~is_setup())
    ranges = ranges.with_columns(end_ns=pl.col("ts_ns") + pl.col("dur_ns"))
    within = work.measure(ranges["ts_ns"].to_numpy(), ranges["end_ns"].to_numpy())
    holding = ranges.filter(pl.Series(within >= MIN_MEASURED_FRACTION * launched[last], dtype=pl.Boolean))
    if holding.height:
        start, end, name = holding.sort("dur_ns").select("ts_ns", "end_ns", "name").row(-1)
    return MeasuredStretch(start, end, tuple(setup["name"].unique(maintain_order=True)), name)


def _list_stretches(setup: pl.DataFrame, trace: RankTrace) -> tuple[Ints, Ints]:
    """List begin and end of what lies between the ranges, before the first and after the last."""
    tables = (trace.ops, trace.calls, trace.annotations)
    spans = pl.concat(table.select("ts_ns", end_ns=pl.col("ts_ns") + pl.col("dur_ns")) for table in tables)
    begins, ends = setup["ts_ns"].to_numpy(), (setup["ts_ns"] + setup["dur_ns"]).cum_max().to_numpy()
    starts = np.concatenate([[spans["ts_ns"].to_numpy().min()], ends])
    stops = np.concatenate([begins, [spans["end_ns"].to_numpy().max() + 1]])
    return starts, np.maximum(stops, starts)
