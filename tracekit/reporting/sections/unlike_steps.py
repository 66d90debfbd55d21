"""Steps that took otherwise than the median one, and what the trace tells of why."""

from dataclasses import dataclass

import polars as pl

from tracekit.analysis.idle import IdleBreakdown
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.format import format_duration, shorten_kernel_name
from tracekit.ingest.build import NUMBERED_STEP
from tracekit.reporting.sections.steps import tabulate_measured_steps
from tracekit.run import MeasuredRun

UNLIKE = 1.3
"""How many times as long or as short as the median step one is to be named. Steps of one job differ by a few percent;
from 1.3 on the finding of steps that are warming up tells them too."""

MOST = 3
"""How many steps are named."""

BUSY = "busy"
ON_THREAD = ("pid", "tid")
BY_CPU = (IdleCause.LAUNCH_BOUND, IdleCause.SYNC_BOUND)
"""Idle time in which the CPU works towards a launch; the latter, before which it waited as long for the GPU."""


@dataclass(frozen=True, slots=True)
class Unlike:
    """Steps that took otherwise.

    Attributes:
        told: The ones farthest off, a clause each.
        count: How many there are.
        of: Of how many.
        median_us: The median of them all.
    """

    told: tuple[str, ...]
    count: int
    of: int
    median_us: float


def build(run: MeasuredRun, idle: IdleBreakdown) -> Unlike | None:
    """The measured steps that took otherwise than the median one; None without any.

    Args:
        run: The measured run.
        idle: Why its GPU was idle.
    """
    steps = tabulate_measured_steps(run).filter(~pl.col("first") | pl.col("first").all())
    median_ns = steps.select(pl.col("time_ns").median().cast(pl.Float64)).item()
    if not median_ns:
        return None
    off = (pl.col("time_ns") / median_ns).log().abs()
    unlike = steps.filter(off > pl.lit(UNLIKE).log()).sort(off, "step", descending=[True, False])
    if unlike.is_empty():
        return None
    parts = _parts(idle, steps)
    rows = unlike.head(MOST).select("step", "time_ns").iter_rows()
    told = (_told(run, idle, parts.filter(step=step), step, time_ns, time_ns - median_ns) for step, time_ns in rows)
    return Unlike(tuple(told), unlike.height, steps.height, median_ns / 1e3)


def _parts(idle: IdleBreakdown, steps: pl.DataFrame) -> pl.DataFrame:
    """Per step and part of it, the GPU's work or a cause of its idle time: how much ``more_ns`` than in the median."""
    ranks = idle.steps.group_by("step").agg(ranks=pl.len())
    pieces = pl.concat(
        [
            idle.segments.select("step", pl.col("cause").replace(BY_CPU[1], BY_CPU[0]), "time_ns"),
            idle.steps.select("step", pl.lit(BUSY).alias("cause"), time_ns="busy_ns"),
        ]
    )
    summed = pieces.group_by("step", "cause").agg(pl.col("time_ns").sum())
    every = steps.select("step").join(ranks, on="step").join(summed.select("cause").unique(), how="cross")
    each = every.join(summed, on=["step", "cause"], how="left").with_columns(
        time_ns=pl.col("time_ns").fill_null(0) / pl.col("ranks")
    )
    return each.select("step", "cause", more_ns=pl.col("time_ns") - pl.col("time_ns").median().over("cause"))


def _told(run: MeasuredRun, idle: IdleBreakdown, parts: pl.DataFrame, step: int, time_ns: int, off_ns: float) -> str:
    """A step with its time, and what made most of the difference, if one thing made half of it."""
    told = f"step {step} took {format_duration(time_ns / 1e3)}"
    largest = parts.filter(pl.col("more_ns") * off_ns >= off_ns**2 / 2).sort(pl.col("more_ns").abs(), descending=True)
    if largest.is_empty():
        return told
    cause, more_ns = largest.select("cause", "more_ns").row(0)
    than = f"{format_duration(abs(more_ns) / 1e3)} {'more' if off_ns > 0 else 'less'}"
    if cause == BUSY:
        return f"{told} (the GPU worked {than})"
    if off_ns < 0:
        return f"{told} (the GPU was idle for {than})"
    ran = _ran(run, idle, step) if cause == BY_CPU[0] else ""
    return f"{told} (the GPU was idle for {than}: {CAUSE_MEANINGS[IdleCause(cause)]}{ran})"


def _ran(run: MeasuredRun, idle: IdleBreakdown, step: int) -> str:
    """What the CPU ran in most of the longest time that a step's GPU waited for a launch, as far as it is recorded."""
    waits = idle.segments.filter(pl.col("step") == step, pl.col("cause").is_in(BY_CPU)).drop_nulls("kernel")
    if waits.is_empty() or len(run.ranks) > 1:
        return ""
    kernel, waited_ns = waits.group_by("kernel").agg(pl.col("time_ns").sum()).sort("time_ns", "kernel").row(-1)
    start_ns, call = run.kernels.select("ts_ns", "call").row(kernel)
    if call is None:
        return ""
    rank = run.trace
    thread = rank.calls[call].select(ON_THREAD)
    spans = [table.select("name", "ts_ns", "dur_ns", *ON_THREAD) for table in (rank.ops, rank.calls, rank.annotations)]
    end_ns = pl.min_horizontal(pl.col("ts_ns") + pl.col("dur_ns"), start_ns)
    within_ns = end_ns - pl.max_horizontal(pl.col("ts_ns"), start_ns - waited_ns)
    ran = pl.concat(spans).join(thread, on=ON_THREAD, how="semi").filter(within_ns >= waited_ns / 2)
    ran = ran.filter(~pl.col("name").str.contains(NUMBERED_STEP)).sort("dur_ns", "name")
    return f", in {shorten_kernel_name(ran['name'][0])}" if ran.height else ", and no op was recorded"


def sentence(found: Unlike) -> str:
    """What to say of them."""
    others = f", and {found.count - len(found.told)} more" if found.count > len(found.told) else ""
    differ = "differs" if found.count == 1 else "differ"
    return (
        f"{found.count} of {found.of} steps {differ} from the median one, "
        f"{format_duration(found.median_us)}, by more than a "
        f"factor of {UNLIKE:g}: {'; '.join(found.told)}{others}; the step shown is the median one, --steps chooses "
        "others"
    )
