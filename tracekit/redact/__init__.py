"""A trace without what tells whose it is, but with all that predictions need."""

from tracekit.redact.files import redact
from tracekit.redact.words import REDACTED, Removed

__all__ = ["REDACTED", "Removed", "redact"]
