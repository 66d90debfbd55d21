"""Secrets in a trace, and copies of it without private names."""

from tracekit.messages.model import Severity, Template

SECRET_FOUND = Template(
    "secret-found",
    Severity.WARNING,
    "The trace carries what looks like {kind} (in its {locations:list}).",
    "Before you share it, write a copy without it with `tracekit redact`.",
)
