"""Findings about communication: exposed collectives, a rank that others wait for, many small collectives."""

from collections.abc import Iterator

import polars as pl

from tracekit.analysis.critical_path import HOST
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.waits import find_stragglers
from tracekit.messages import findings as told
from tracekit.messages.model import Template
from tracekit.reporting.findings.bottleneck import choose_limiter
from tracekit.reporting.findings.context import MAX_EVIDENCE_ROWS, Evidence, Finding, FindingContext
from tracekit.reporting.sections.step import COLLECTIVE

MIN_EXPOSED_FRACTION = 0.05


def find_exposed_communication(context: FindingContext) -> Iterator[Finding]:
    """Find exposed communication: only collectives run in at least 5 % of the step, and the step launched some."""
    exposed_us = context.run.measured_step.exposed_comm_us
    part = exposed_us / context.step_time_us
    if part < MIN_EXPOSED_FRACTION:
        return
    collectives = context.select_families(COLLECTIVE)
    if collectives.is_empty():
        return
    saves_us = context.compute_saving_us(collectives, 0.0)
    yield Finding(
        message=_choose_message(context, saves_us)(exposed_us=exposed_us, exposed_pct=100 * part),
        saves_us=saves_us,
        evidence=context.list_evidence(collectives),
        parts=(COLLECTIVE, IdleCause.RENDEZVOUS.value),
    )


def _choose_message(context: FindingContext, saves_us: float) -> Template:
    """Choose what to say, by whether the step would be shorter without collectives, and if not, by what limits it."""
    if context.is_worth_reporting(saves_us):
        return told.EXPOSED_COMMUNICATION
    limiter = choose_limiter(context.replayed[0].resources)
    is_cpu = limiter is not None and limiter.kind == HOST
    return told.EXPOSED_COMMUNICATION_BEHIND_CPU if is_cpu else told.EXPOSED_COMMUNICATION_BEHIND_OTHERS


def find_straggler(context: FindingContext) -> Iterator[Finding]:
    """Find a rank that arrives later than all others by at least 1 % of the step; it can save no more than that."""
    if context.run.collectives is None:
        return
    ranks = find_stragglers(context.run.program).sort("held_up_us", descending=True)
    if ranks.is_empty() or not context.is_worth_reporting(ranks["held_up_us"][0]):
        return
    worst = ranks.row(0, named=True)
    yield Finding(
        message=told.STRAGGLER(rank=worst["rank"], last_pct=100 * worst["last_share"]),
        saves_us=worst["held_up_us"],
        evidence=tuple(
            Evidence(
                f"rank {row['rank']}",
                row["held_up_us"],
                told.RANK_BUSY_AND_WAITING(busy_us=row["busy_us"], wait_us=row["wait_us"]),
            )
            for row in ranks.head(MAX_EVIDENCE_ROWS).iter_rows(named=True)
        ),
        parts=(IdleCause.RENDEZVOUS.value,),
    )


MAX_SMALL_BYTES = 1 << 20
MIN_COLLECTIVES = 4


def find_small_collectives(context: FindingContext) -> Iterator[Finding]:
    """Find steps with four or more collectives of one kind and group below 1 MiB, if merging them saves time.

    The merged collective is assumed to take as long as the longest of them.
    """
    alike = ("rank", "step", "collective", "process_group", "ranks")
    collectives = context.select_families("collective")
    if collectives.is_empty():
        return
    many = collectives.filter(pl.col("bytes") < MAX_SMALL_BYTES).filter(pl.len().over(alike) >= MIN_COLLECTIVES)
    if many.is_empty():
        return
    saves_us = context.compute_merge_saving_us(many, *alike)
    if not context.is_worth_reporting(saves_us):
        return
    per_step = many.height / context.step_count
    yield Finding(
        message=told.SMALL_COLLECTIVES(collectives=per_step, collectives_us=context.sum_per_step_us(many)),
        saves_us=saves_us,
        evidence=context.list_evidence(many),
    )
