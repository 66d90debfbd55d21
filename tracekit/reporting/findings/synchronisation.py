"""Finding: the host waits for the GPU instead of launching ahead."""

from collections.abc import Iterator

from tracekit.analysis.idle_causes import IdleCause
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding
from tracekit.whatif import no_sync


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
        evidence=context.list_late_launches(shown.WAIT_BEFORE_LAUNCH(), IdleCause.SYNC_BOUND),
        parts=(IdleCause.SYNC_BOUND.value,),
    )
