"""Findings about the CPU: launches, waits, data loading, the allocator, graph breaks, warming up."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import numpy as np
import polars as pl

from tracekit.analysis.idle_causes import IdleCause
from tracekit.arrays import select_table
from tracekit.graph import recorded
from tracekit.graph.recorded import DATA_LOADER_RANGES
from tracekit.ingest.batches import select_outermost
from tracekit.messages import Value
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import COMPILED_REGION_PATTERN, Evidence, Finding, FindingContext
from tracekit.trace import RankTrace
from tracekit.whatif import KernelSelection, compute_saving_us, cuda_graph, no_sync, prefetch
from tracekit.whatif.launches import compute_fraction_within, scale_lags

MIN_HOST_FRACTION = 0.5
MIN_UNSCALED_FRACTION = 0.05
"""Fraction of the step that neither GPU nor host account for, from which on the finding mentions it."""


def find_launch_bound(context: FindingContext) -> Iterator[Finding]:
    """Find a launch-bound step: the host takes half of it with zero-time kernels, and CUDA graphs save at least 1 %.

    Time that is left with both kernels and host at zero isn't the host's: these waits and gaps stay as measured.
    """
    part, kept = (context.replays.compute_step_time_us(inf, host) / context.step_time_us for host in (1.0, inf))
    if part - kept < MIN_HOST_FRACTION:
        return
    saves_us = context.compute_edit_saving_us(lambda run: cuda_graph(run, KernelSelection({})))
    if not context.is_worth_reporting(saves_us):
        return
    floor: dict[str, Value] = {
        "floor_us": part * context.step_time_us,
        "floor_pct": 100 * part,
        "remedies": context.list_launch_remedies(),
    }
    message = told.LAUNCH_BOUND(**floor)
    if kept >= MIN_UNSCALED_FRACTION:
        message = told.LAUNCH_BOUND_PARTLY(**floor, kept_us=kept * context.step_time_us)
    yield Finding(
        message=message,
        saves_us=saves_us,
        evidence=context.list_late_launches(told.LAUNCH_LATE(), IdleCause.LAUNCH_BOUND, IdleCause.LAUNCH_LATENCY),
        parts=(IdleCause.LAUNCH_BOUND.value, IdleCause.LAUNCH_LATENCY.value),
    )


def find_synchronisation(context: FindingContext) -> Iterator[Finding]:
    """Find synchronizations whose removal saves at least 1 % of the step."""
    saves_us = context.compute_edit_saving_us(no_sync)
    if not context.is_worth_reporting(saves_us):
        return
    idle = context.idle.sum_by_cause()
    waited = float(idle["time_us"].filter(idle["cause"] == IdleCause.SYNC_BOUND).sum())
    yield Finding(
        message=told.SYNCHRONISATION(idle_us=waited),
        saves_us=saves_us,
        evidence=context.list_late_launches(told.WAIT_BEFORE_LAUNCH(), IdleCause.SYNC_BOUND),
        parts=(IdleCause.SYNC_BOUND.value,),
    )


WORKERS_ITERATOR = "_MultiProcessingDataLoaderIter"
"""Iterator of a ``DataLoader`` that has worker processes."""


def find_data_loading(context: FindingContext) -> Iterator[Finding]:
    """Find data loading, if batches without loading time save at least 1 % of the step."""
    saves_us = context.compute_edit_saving_us(prefetch)
    if not context.is_worth_reporting(saves_us):
        return
    loads = context.select_in_steps(_select_loader_spans)
    takes_us = float(loads["dur_ns"].sum()) / 1e3 / context.step_count
    has_workers = bool(loads["name"].str.contains(WORKERS_ITERATOR, literal=True).any())
    yield Finding(
        message=(told.DATA_LOADING_BY_WORKERS if has_workers else told.DATA_LOADING)(loading_us=takes_us),
        saves_us=saves_us,
        evidence=context.list_longest_spans(loads, lambda count: told.SPAN_RAN(times=count)),
        parts=(IdleCause.DATA_LOADING.value,),
    )


def _select_loader_spans(rank: RankTrace) -> pl.DataFrame:
    found = {table: rank.find_named(table, DATA_LOADER_RANGES) for table in ("ops", "annotations")}
    return pl.concat(rank.tables[table][["name", "ts_ns", "dur_ns"]][rows] for table, rows in found.items())


EXPANDABLE_CALL_PATTERN = r"^cuMem(Create|Map|Unmap|Release)$"
"""Calls of an allocator whose segments are expandable."""
ALLOCATOR_CALL_PATTERN = r"^(cuda|hip)(Malloc|Free|MallocAsync|FreeAsync)$|^cu(MemCreate|MemMap|MemUnmap|MemRelease)$"


def find_allocator_calls(context: FindingContext) -> Iterator[Finding]:
    """Find driver allocations whose removal saves at least 1 % of the step."""
    run = context.run
    calls = [_select_allocator_calls(rank) for rank in run.ranks]
    if not any(table.height for table in calls):
        return
    inside = recorded.build_spans(calls, run.program.launch_threads)
    graph = scale_lags(run.graph, 1 - compute_fraction_within(run.graph, inside))
    saves_us = compute_saving_us(run.program, replace(run.program, graph=graph))
    if not context.is_worth_reporting(saves_us):
        return
    made = context.select_in_steps(_select_allocator_calls)
    takes_us = float(made["dur_ns"].sum()) / 1e3 / context.step_count
    is_expandable = bool(made["name"].str.contains(EXPANDABLE_CALL_PATTERN).any())
    yield Finding(
        message=(told.ALLOCATOR_EXPANDABLE if is_expandable else told.ALLOCATOR)(calls_us=takes_us),
        saves_us=saves_us,
        evidence=context.list_longest_spans(made, lambda count: told.CALL_MADE(calls=count)),
        parts=(IdleCause.ALLOCATOR.value,),
    )


def _select_allocator_calls(rank: RankTrace) -> pl.DataFrame:
    return rank.calls[rank.find_named("calls", ALLOCATOR_CALL_PATTERN)]


def find_graph_breaks(context: FindingContext) -> Iterator[Finding]:
    """Find graph breaks: a step runs at least two compiled regions one after another."""
    if not context.is_compiled:
        return
    regions = select_outermost(context.select_in_steps(_select_regions), "rank", "pid", "tid")
    per_step = regions.height / context.step_count
    if per_step < 2:
        return
    yield Finding(
        message=told.GRAPH_BREAKS(regions=per_step),
        saves_us=None,
        evidence=context.list_longest_spans(regions, lambda count: told.SPAN_RAN(times=count)),
    )


def _select_regions(rank: RankTrace) -> pl.DataFrame:
    return rank.ops[rank.find_named("ops", COMPILED_REGION_PATTERN)].with_columns(rank=pl.lit(rank.rank or 0))


MIN_SLOWDOWN = 1.3
MIN_STEPS = 3


def find_warmup_step(context: FindingContext) -> Iterator[Finding]:
    """Find a first measured step, of at least three, that takes 30 % longer than the median of the others.

    The trace's first step doesn't count if it is left out.
    """
    steps = context.run.measured_steps
    steps = select_table(steps, np.isin(steps["step"].to_numpy(), context.run.chosen_steps["step"].to_numpy()))
    if steps.height < MIN_STEPS:
        return
    first_us, median_us = steps["time_ns"][0] / 1e3, float(steps["time_ns"][1:].median() or 0) / 1e3  # type: ignore[arg-type]
    if first_us < MIN_SLOWDOWN * median_us:
        return
    number, last = steps["step"][0], steps["step"][-1]
    rows = zip(steps["step"], steps["time_ns"] / 1e3, strict=True)
    yield Finding(
        message=told.WARM_UP(step=number, step_us=first_us, median_us=median_us, first=number + 1, last=last),
        saves_us=None,
        evidence=tuple(Evidence(f"step {step}", time_us) for step, time_us in rows),
    )
