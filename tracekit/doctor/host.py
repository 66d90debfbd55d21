"""What the CPU did: its ops and calls, whether launches and kernels belong together, what the profiler itself cost."""

import polars as pl

from tracekit.doctor import recipe
from tracekit.doctor.model import Case, Check, Status, at_most_warn, by_cost
from tracekit.replay.lost import without_kernel
from tracekit.units import many
from tracekit.workload.extract import has_work
from tracekit.workload.shares import share

SLOWING = {
    "with_stack": recipe.NO_STACKS,
    "with_modules": recipe.NO_MODULES,
    "profile_memory": recipe.NO_MEMORY,
}


def cpu_activity(case: Case) -> Check:
    """Fails without CPU ops or without runtime calls."""
    ops, calls = case.rank.ops.height, case.rank.calls.height
    name, title, evidence = "cpu_activity", "CPU activity", f"{many(ops, 'op')}, {many(calls, 'runtime call')}"
    if ops and calls:
        return Check(name, title, Status.OK, evidence)
    if calls:
        cost = case.step_share(~has_work())
        lost = f"{cost:.0f} % of the step is known by kernel names only, and nothing tells what the CPU did"
    else:
        cost = 100.0
        lost = "no kernel has a launch: the GPU's idle time stays as measured, whatever the GPU"
    return Check(name, title, Status.FAIL, evidence, lost, cost, recipe.ACTIVITIES, recipe.ACTIVITIES)


def kernels_without_launch(case: Case) -> Check | None:
    """Warns about GPU work that no recorded call launched."""
    kernels, calls = case.run.kernels, case.rank.calls
    if calls.is_empty():
        return None
    orphan = pl.col("call").is_null()
    count = kernels["call"].null_count()
    within = pl.col("ts_ns") > pl.col("ts_ns").filter(pl.col("step").is_not_null()).min()
    cost = share(kernels, "dur_ns", orphan & within.fill_null(True)) * case.work_share / 100
    early = kernels.filter(orphan & (pl.col("ts_ns") < calls["ts_ns"].min())).height
    status = by_cost(cost)
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


def launches_without_kernel(case: Case) -> Check | None:
    """Warns about launches whose kernel wasn't recorded; those that capture a graph have none."""
    missing, launches = without_kernel(case.rank)
    if not launches:
        return None
    # Kernels that are missing take as long as those that are there, where some are.
    cost = min(case.work_share * missing / (launches - missing), 100.0) if missing < launches else 100.0
    status = by_cost(cost)
    return Check(
        "launches_without_kernel",
        "Launches",
        status,
        f"{missing:,} of {launches:,} launches have no kernel in the trace",
        f"work of the GPU, up to {cost:.0f} % of the step, is missing and counts as idle time",
        cost,
        "record fewer steps at once: full buffers lose kernels",
    )


def overhead(case: Case) -> Check | None:
    """Warns about recording options that slow the CPU down; older traces don't note their options."""
    noted = case.rank.metadata.keys() & {"record_shapes", *SLOWING}
    if not case.rank.metadata or (case.rank.shapes_recorded and not noted):
        return None
    used = [name for name in SLOWING if str(case.rank.metadata.get(name, 0)).lower() in ("1", "true")]
    cost = case.of_step(case.run.measured.idle_us) if used else 0.0
    status = at_most_warn(cost)
    recorded = f"{', '.join(used)} on" if used else "no stacks, no modules, no memory"
    without_us = case.rank.unprofiled_step_us
    if without_us:
        recorded += f"; a step takes {without_us / case.run.measured.step_time_us:.0%} of its time without the profiler"
    waiting = f"; the GPU is idle for {cost:.0f} % of the step" if used else ""
    options = ", ".join(SLOWING[name] for name in used)
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
