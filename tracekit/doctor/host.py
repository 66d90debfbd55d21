"""Checks of the host: its ops and calls, whether launches and kernels match, and the profiler's overhead."""

import polars as pl

from tracekit.analysis.lost_kernels import count_lost_launches
from tracekit.doctor import recipe
from tracekit.doctor.model import Check, CheckContext, Status, grade_cost, grade_cost_bound
from tracekit.format import format_quantity
from tracekit.workload.kernel_table import has_work
from tracekit.workload.time_share import compute_time_share

SLOWING_OPTIONS = {
    "with_stack": recipe.NO_STACKS,
    "with_modules": recipe.NO_MODULES,
    "profile_memory": recipe.NO_MEMORY,
}


def check_cpu_activity(context: CheckContext) -> Check:
    """Fail if the trace has no CPU ops or no runtime calls."""
    ops, calls = context.rank.ops.height, context.rank.calls.height
    name, title, evidence = (
        "cpu_activity",
        "CPU activity",
        f"{format_quantity(ops, 'op')}, {format_quantity(calls, 'runtime call')}",
    )
    if ops and calls:
        return Check(name, title, Status.OK, evidence)
    if calls:
        cost = context.compute_step_pct(~has_work())
        lost = f"{cost:.0f} % of the step is known by kernel names only, and nothing tells what the CPU did"
    else:
        cost = 100.0
        lost = "no kernel has a launch: the GPU's idle time stays as measured, whatever the GPU"
    return Check(name, title, Status.FAIL, evidence, lost, cost, recipe.ACTIVITIES, recipe.ACTIVITIES)


def check_kernels_without_launch(context: CheckContext) -> Check | None:
    """Warn about GPU work that no recorded call launched."""
    kernels, calls = context.run.kernels, context.rank.calls
    if calls.is_empty():
        return None
    orphan = pl.col("call").is_null()
    count = kernels["call"].null_count()
    within = pl.col("ts_ns") > pl.col("ts_ns").filter(pl.col("step").is_not_null()).min()
    cost = compute_time_share(kernels, "dur_ns", orphan & within.fill_null(True)) * context.work_pct / 100
    early = kernels.filter(orphan & (pl.col("ts_ns") < calls["ts_ns"].min())).height
    status = grade_cost(cost)
    before = f", {early:,} of them began before the first call" if early else ""
    return Check(
        "kernels_without_launch",
        "Kernels",
        status,
        f"{count:,} of {kernels.height:,} GPU activities have no launch in the trace{before}",
        f"{cost:.0f} % of the step belongs to no step and no op, and waits for no CPU",
        cost,
        f"{recipe.SCHEDULE}: warm-up steps catch them",
        recipe.SCHEDULE,
    )


def check_launches_without_kernel(context: CheckContext) -> Check | None:
    """Warn about launches whose kernel wasn't recorded; launches during a graph capture don't count."""
    missing, launches = count_lost_launches(context.rank)
    if not launches:
        return None
    # Missing kernels are assumed to take as long as recorded ones, if any were recorded.
    cost = min(context.work_pct * missing / (launches - missing), 100.0) if missing < launches else 100.0
    status = grade_cost(cost)
    return Check(
        "launches_without_kernel",
        "Launches",
        status,
        f"{missing:,} of {launches:,} launches have no kernel in the trace",
        f"work of the GPU, up to {cost:.0f} % of the step, is missing and counts as idle time",
        cost,
        "record fewer steps at once: full buffers lose kernels",
    )


def check_overhead(context: CheckContext) -> Check | None:
    """Warn about recording options that slow the host down; older traces don't record their options."""
    noted = context.rank.metadata.keys() & {"record_shapes", *SLOWING_OPTIONS}
    if not context.rank.metadata or (context.rank.has_shapes and not noted):
        return None
    used = [name for name in SLOWING_OPTIONS if str(context.rank.metadata.get(name, 0)).lower() in ("1", "true")]
    cost = context.to_step_pct(context.run.measured_step.idle_us) if used else 0.0
    status = grade_cost_bound(cost)
    recorded = f"{', '.join(used)} on" if used else "no stacks, no modules, no memory"
    without_us = context.rank.unprofiled_step_us
    if without_us:
        recorded += (
            f"; a step takes {without_us / context.run.measured_step.step_time_us:.0%} of its time without the profiler"
        )
    waiting = f"; the GPU is idle for {cost:.0f} % of the step" if used else ""
    options = ", ".join(SLOWING_OPTIONS[name] for name in used)
    return Check(
        "overhead",
        "Overhead",
        status,
        recorded + waiting,
        f"recording this lengthens the CPU's time, up to {cost:.0f} % of the step",
        cost,
        options,
        options,
    )
