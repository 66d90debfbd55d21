"""Messages about stored reports."""

from tracekit.messages.model import Severity, Template

NOT_A_REPORT = Template(
    "not-a-report",
    Severity.ERROR,
    "This is not a report that version {version} of tracekit wrote.",
    "Build the report again.",
)
