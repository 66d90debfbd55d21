"""Redact a trace: remove what identifies its owner, and keep what predictions need."""

from tracekit.redact.files import redact
from tracekit.redact.redactor import REDACTED, RedactionSummary

__all__ = ["REDACTED", "RedactionSummary", "redact"]
