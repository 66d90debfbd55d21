"""Recorded times that break physics."""

from tracekit.messages.model import Severity, Template

TIMES_DISPLACED = Template(
    "times-displaced",
    Severity.WARNING,
    "{count:count event} on the GPU started before its own launch or out of its stream's order, the first by {off_us} "
    "({name}). It was placed after what was launched before it.",
    "Record the trace again if many are.",
)
TIMES_OVERRUN = Template(
    "times-overrun",
    Severity.WARNING,
    "{count:count event} on the GPU outlasted the next one on its stream, or the call that waited for it; the longest "
    "took {longest_us} ({name}). It was cut there.",
)
CLOCK_OFFSET = Template(
    "clock-offset",
    Severity.WARNING,
    "GPU times are off by {late_us:change} against the CPU's clock, by launches and blocking calls. They were "
    "corrected.",
)
CLOCK_DRIFT = Template(
    "clock-drift",
    Severity.WARNING,
    "GPU times drift from {first_us:change} to {last_us:change} against the CPU's clock. They were corrected.",
)
