"""Diagnose a trace by the checks, in the order shown. A new one is a function and a line of ``CHECKS``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tracekit import secret_scan
from tracekit.doctor import host, steps, work
from tracekit.doctor.model import (
    MIN_WARN_PCT,
    Check,
    CheckContext,
    Diagnosis,
    Status,
    choose_most_helpful,
    grade,
)
from tracekit.doctor.recipe import build_commands, build_snippet, identify_recorder, translate_check
from tracekit.errors import TracekitError
from tracekit.graph.ranks.lost import RecordedCollectives, find_lacking_ranks
from tracekit.messages import doctor_checks as told
from tracekit.messages.reports import TIMES_SYNTHETIC
from tracekit.run import MeasuredRun
from tracekit.trace import RankTrace, Trace
from tracekit.workload.owners import count_lost_launches

CHECKS: tuple[Callable[[CheckContext], Check | None], ...] = (
    steps.check_format,
    work.check_gpu,
    host.check_cpu_activity,
    work.check_shapes,
    work.check_known_ops,
    work.check_cuda_graphs,
    work.check_collective_sizes,
    host.check_idle_time,
    host.check_unrecorded_work,
    steps.check_times,
    steps.check_step_marks,
    steps.check_step_spread,
    steps.check_warmup,
    work.check_gpu_speed,
    host.check_kernels_without_launch,
    host.check_launches_without_kernel,
    host.check_graph_replays,
    host.check_overhead,
    host.check_sync_events,
    host.check_replay,
    steps.check_all_ranks,
    steps.check_lost_events,
)
"""Each check returns ``None`` if it doesn't apply."""
JOB_CHECKS = frozenset((steps.check_all_ranks,))
"""Those of all ranks together; the others look at one rank."""
CAPTURE_CHECKS: tuple[Callable[[CheckContext], Check | None], ...] = (work.check_recording, work.check_known_ops)
"""Those of a program that was captured without a GPU."""


SEVERITIES = tuple(Status)


MeasureRank = Callable[[int | None], MeasuredRun]


def examine(trace: Trace, run: MeasuredRun, beside: int = 0, measure: MeasureRank | None = None) -> Diagnosis:
    """Diagnose what a trace lacks for a good prediction.

    The traces of ``beside`` more ranks were given, but are read elsewhere. ``measure`` measures another rank, which is
    examined too; by default only the run's rank is.
    """
    others = [rank for rank in trace.ranks if rank is not run.trace and rank.rank != run.trace.rank]
    ranks = [_examine_rank(run, trace if measure is None else Trace((run.trace,)))]
    if measure is not None and not run.is_captured:
        ranks += [_measure_and_examine(rank, measure) for rank in others]
    recorded = [one.recorded for one in ranks if one.recorded is not None]
    case = CheckContext.from_trace(trace, run, beside, find_lacking_ranks(recorded))
    checks = (*_merge_checks(ranks, case), *(one.failure for one in ranks if one.failure is not None))
    recorder = identify_recorder(run.trace)
    if recorder is not None:
        checks = tuple(translate_check(check, recorder) for check in checks)
    carried = dict.fromkeys(one for rank in trace.ranks for one in secret_scan.build_secret_warnings(rank))
    return Diagnosis(
        source=trace.source,
        rank=run.trace.rank,
        ranks_read=run.provenance.ranks_read,
        ranks_examined=len(ranks),
        world_size=run.trace.world_size,
        grade=grade(checks),
        checks=checks,
        best=choose_most_helpful(checks),
        snippet=build_commands(checks, recorder) if recorder else build_snippet(checks, amd=case.is_amd),
        warnings=(*([TIMES_SYNTHETIC()] if run.trace.is_synthetic else []), *trace.warnings, *carried),
    )


@dataclass(frozen=True, slots=True)
class _ExaminedRank:
    """A rank, and what was found of it: the result of each check by its place; or why it can't be measured."""

    rank: int
    checks: Mapping[int, Check]
    recorded: RecordedCollectives | None = None
    failure: Check | None = None


def _examine_rank(run: MeasuredRun, trace: Trace) -> _ExaminedRank:
    """Examine the rank of a run by the checks that look at one rank."""
    case = CheckContext.from_trace(trace, run)
    found = {place: check(case) for place, check in enumerate(_list_checks(run)) if check not in JOB_CHECKS}
    number = run.trace.rank or 0
    collectives = run.kernels.filter(pl.col("family") == "collective")
    recorded = RecordedCollectives(number, collectives, run.steps.height, count_lost_launches(run.trace)[0])
    return _ExaminedRank(number, {place: one.drop_cost_if_ok() for place, one in found.items() if one}, recorded)


def _measure_and_examine(rank: RankTrace, measure: MeasureRank) -> _ExaminedRank:
    number = rank.rank or 0
    try:
        run = measure(rank.rank)
    except TracekitError as error:
        failed = told.RANK_CHECKED(rank=number, evidence=told.RANK_UNMEASURED(reason=error.catalogue_message))
        cost = told.RANK_UNMEASURED_COST()
        return _ExaminedRank(number, {}, failure=Check("unmeasured", "Measured", Status.FAIL, failed, cost))
    return _examine_rank(run, Trace((run.trace,)))


def _list_checks(run: MeasuredRun) -> Sequence[Callable[[CheckContext], Check | None]]:
    return CAPTURE_CHECKS if run.is_captured else CHECKS


def _merge_checks(ranks: Sequence[_ExaminedRank], case: CheckContext) -> Iterator[Check]:
    """Merge the checks of all ranks: of each, the one of the rank that it costs most."""
    for place, check in enumerate(_list_checks(case.run)):
        if check in JOB_CHECKS:
            if (of_job := check(case)) is not None:
                yield of_job.drop_cost_if_ok()
        elif found := [(one.rank, one.checks[place]) for one in ranks if place in one.checks]:
            yield _choose_worst(found, len(ranks))


def _choose_worst(found: Sequence[tuple[int, Check]], ranks: int) -> Check:
    """Choose the check of the worst rank, which it names where other ranks are better."""
    _, first = found[0]
    _, worst = max(found, key=lambda one: (SEVERITIES.index(one[1].status), one[1].cost_pct))
    alike = [one for one in found if one[1].status is worst.status]
    is_shared = len(alike) == ranks and worst.cost_pct < first.cost_pct + MIN_WARN_PCT
    if is_shared or worst.status is Status.OK:
        return first
    rank, check = max(alike, key=lambda one: one[1].cost_pct)
    if len(alike) == 1:
        evidence = told.RANK_CHECKED(rank=rank, evidence=check.evidence)
    else:
        evidence = told.RANKS_CHECKED(rank=rank, more=len(alike) - 1, evidence=check.evidence)
    return replace(check, evidence=evidence)
