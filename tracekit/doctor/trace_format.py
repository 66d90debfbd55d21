"""Check of the format: what a trace of another tool than PyTorch's profiler can't hold."""

from tracekit.doctor.model import Check, CheckContext, Status
from tracekit.messages import doctor_checks as told
from tracekit.messages.traces import FORMAT_LACKS


def check_format(context: CheckContext) -> Check | None:
    """Warn of what another tool's format lacks."""
    found = [message.values for message in context.rank.warnings if message.template is FORMAT_LACKS]
    if not found:
        return None
    evidence = told.FORMAT_OF_TOOL(tool=found[0]["tool"], lacks=found[0]["lacks"])
    return Check("format", "Format", Status.WARN, evidence, fix=told.FORMAT_FIX())
