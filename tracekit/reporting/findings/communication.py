"""Finding: collectives that nothing overlaps."""

from collections.abc import Iterator

from tracekit.analysis.critical_path import HOST
from tracekit.analysis.idle_causes import IdleCause
from tracekit.messages import findings as told
from tracekit.messages.model import Template
from tracekit.reporting.findings.bottleneck import choose_limiter
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding
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
