"""Steps of a trace."""

from tracekit.messages.model import Severity, Template

STEPS_RENUMBERED = Template(
    "steps-renumbered",
    Severity.NOTE,
    "ranks {ranks:list} number their steps differently: joined with those of the first rank by their times",
)
