"""Recorded times that break physics."""

from tracekit.messages.model import Severity, Template

TIMES_DISPLACED = Template(
    "times-displaced",
    Severity.WARNING,
    "{count:count event} on the GPU recorded before its own launch or out of its stream's order, the first by {off_us} "
    "({name}): placed after what was launched before it.",
    "Record the trace again if many are.",
)
TIMES_OVERRUN = Template(
    "times-overrun",
    Severity.WARNING,
    "{count:count event} on the GPU recorded as still running when the next one on its stream, or the call that waited "
    "for it, was over; the longest {longest_us} ({name}): cut there.",
)
CLOCK_OFFSET = Template(
    "clock-offset",
    Severity.WARNING,
    "GPU times are off by {late_us:change} against the CPU's clock, by launches and blocking calls: corrected.",
)
CLOCK_DRIFT = Template(
    "clock-drift",
    Severity.WARNING,
    "GPU times drift from {first_us:change} to {last_us:change} against the CPU's clock: corrected.",
)
