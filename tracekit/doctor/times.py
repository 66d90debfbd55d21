"""Check of the recorded times against physics."""

from tracekit.doctor.model import Check, CheckContext, Status

NAME, TITLE = "times", "Recorded times"


def check_times(context: CheckContext) -> Check:
    """Warn if recorded times broke physics and were corrected."""
    faults = context.run.time_faults
    if not faults:
        return Check(NAME, TITLE, Status.OK, "kernels start after their launch, and end in their stream's order")
    return Check(
        NAME,
        TITLE,
        Status.WARN,
        "; ".join(fault.render_text().rstrip(".") for fault in faults),
        "predictions rest on the corrected times",
        fix="record the trace again; if it comes back, update PyTorch and the driver",
    )
