"""Whether the measured steps stand for the job: marks, spread, warm-up."""

import polars as pl

from tracekit.doctor import recipe
from tracekit.doctor.model import Case, Check, Status, by_cost
from tracekit.ingest.captured import LAUNCHES_GRAPH
from tracekit.replay.engine import measured
from tracekit.units import duration, many
from tracekit.workload.steps import is_whole_trace, iterations

# Steps of one job differ by a few percent.
USUAL_SPREAD_PCT = 5.0
SLOW_FIRST = 1.2
WARMING_UP = r"^(cuda|hip|cu)(Malloc|Free|HostAlloc|HostMalloc|MemCreate|StreamCreate|EventCreate|(Module|Library)Load)"
# The first launch of a kernel loads it: no other launch takes that long but where the queue is full.
LOADING_US = 1000.0


def marked(case: Case) -> Check:
    """Warns if the trace holds fewer than two marked steps."""
    name, title, steps = "steps", "Steps", case.run.steps
    if is_whole_trace(case.run.steps):
        cost = case.of_step(_outside_gpu_work_us(case))
        several = iterations(case.rank)
        return Check(
            name,
            title,
            Status.WARN,
            f"no ProfilerStep marks: the whole trace counts as one step{f', though {several}' if several else ''}",
            f"{cost:.0f} % of it lies before or after all GPU work and counts as part of the step",
            cost,
            f"{recipe.SCHEDULE} and profiler.step()",
            recipe.SCHEDULE,
        )
    if steps.height == 1:
        return Check(
            name,
            title,
            Status.WARN,
            "one step is marked",
            "nothing tells how steps vary, and this one counts from its own mark, not from the end of one before",
            fix=recipe.SCHEDULE,
            option=recipe.SCHEDULE,
        )
    return Check(name, title, Status.OK, f"{steps.height} marked, {case.run.measured.steps} of them measured")


def _outside_gpu_work_us(case: Case) -> float:
    """Time of the trace before the GPU's first activity and after its last."""
    (start, end), busy = case.run.steps.select("start_ns", "end_ns").row(0), case.rank.activities
    before = max(busy["ts_ns"].min() - start, 0)
    after = max(end - (busy["ts_ns"] + busy["dur_ns"]).max(), 0)
    return float(before + after) / 1e3


def steady(case: Case) -> Check | None:
    """Warns if the measured steps differ by more than steps usually do."""
    times = _step_times(case)
    rest = times.filter(~pl.col("first"))
    if rest.height < 2:
        return None
    time = pl.col("time_ns")
    middle, low, high = rest.select(m=time.median(), l=time.min(), h=time.max()).row(0)
    cost = 100 * (high - low) / 2 / (middle or 1.0)
    status = by_cost(cost, warn=USUAL_SPREAD_PCT)
    return Check(
        "steady",
        "Steady steps",
        status,
        f"{rest.height} steps of {duration(low / 1e3)} to {duration(high / 1e3)}, median {duration(middle / 1e3)}",
        f"the median step stands for steps that differ by ±{cost:.0f} %",
        cost,
        "warm up longer, or choose like steps with --steps N:M",
    )


def warm(case: Case) -> Check:
    """Warns if the measured steps still allocate memory, load kernels or create streams."""
    steps, calls = _measured_steps(case), case.rank.calls
    warming = pl.concat([calls.filter(pl.col("name").str.contains(WARMING_UP)), _loading(case)])
    inside = warming.join_where(steps, pl.col("ts_ns") >= pl.col("start_ns"), pl.col("ts_ns") < pl.col("end_ns"))
    cost = case.of_step(inside.select(pl.col("dur_ns").sum() / 1e3).item() / steps.height)
    status = by_cost(cost)
    counted = f"{many(inside.height, 'call')} in the measured steps"
    return Check(
        "warm",
        "Warmed up",
        status,
        f"{counted} to allocate memory, load kernels or create streams{_first_step(case)}",
        f"{cost:.0f} % of the step is warming up, and counts as every step's",
        cost,
        recipe.SCHEDULE,
        recipe.SCHEDULE,
    )


def _loading(case: Case) -> pl.DataFrame:
    """Launches that load their kernel: long ones, each the first of its kernel; a graph's take long every time."""
    first = case.rank.activities.filter(pl.col("kind") == "kernel").sort("ts_ns").unique("name", keep="first")
    launches = case.rank.calls.join(first.select("correlation"), on="correlation", how="semi")
    return launches.filter((pl.col("dur_ns") > LOADING_US * 1e3) & ~pl.col("name").str.contains(LAUNCHES_GRAPH))


def _measured_steps(case: Case) -> pl.DataFrame:
    chosen = case.run.chosen
    first = case.run.steps["step"][0]
    rest = chosen.filter(pl.col("step") != first)
    return (rest if rest.height else chosen).select("start_ns", "end_ns")


def _first_step(case: Case) -> str:
    first, rest = (pl.col("time_ns").filter(rows).median() for rows in (pl.col("first"), ~pl.col("first")))
    slower = _step_times(case).select((first / rest).fill_null(0.0)).item()
    return f"; the first step took {slower:.1f} times as long and is left out" if slower > SLOW_FIRST else ""


def _step_times(case: Case) -> pl.DataFrame:
    return case.run.each_step(measured(case.run.graph))
