"""The CPU waits for the GPU, and then has to catch up."""

from collections.abc import Iterator

from tracekit.replay.causes import Cause
from tracekit.replay.whatif import no_sync
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration


def find(case: Case) -> Iterator[Finding]:
    """Fires if calls that don't wait for the GPU save a hundredth of the step."""
    saves_us = case.saved_by(no_sync)
    if not case.worth(saves_us):
        return
    idle = case.idle.by_cause()
    waited = float(idle.filter(idle["cause"] == Cause.SYNC_BOUND)["time_us"].sum())
    yield Finding(
        kind="synchronisation",
        title=f"The CPU waits for the GPU instead of launching ahead; {duration(waited)} of idle GPU a step follow.",
        advice=".item(), nonzero, masks as indices, .cpu(), prints and unpinned copies wait: do them rarely or later.",
        saves_us=saves_us,
        evidence=case.late_launches("the GPU idles after a wait", Cause.SYNC_BOUND),
    )
