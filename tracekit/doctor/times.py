"""Check of the recorded times against physics."""

from tracekit.analysis.below_bound import find_below_bound
from tracekit.doctor.model import Check, CheckContext, Status
from tracekit.messages import doctor_checks as told

NAME, TITLE = "times", "Recorded times"


def check_times(context: CheckContext) -> Check:
    """Warn if recorded times broke physics, whether they were corrected or not."""
    below = find_below_bound(context.run.kernels, context.run.gpu)
    faults = (*context.run.provenance.time_faults, *([below] if below else []))
    if not faults:
        return Check(NAME, TITLE, Status.OK, told.TIMES_IN_ORDER())
    return Check(
        NAME,
        TITLE,
        Status.WARN,
        told.TIMES_CORRECTED(faults=faults),
        told.TIMES_CORRECTED_COST(),
        fix=told.TIMES_CORRECTED_FIX(),
    )
