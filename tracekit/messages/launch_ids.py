"""Ids that join GPU activities to the calls that launched them."""

from tracekit.messages.model import Severity, Template

IDS_AMBIGUOUS = Template(
    "ids-ambiguous",
    Severity.WARNING,
    "{ambiguous:,} of {kernels:,} kernels share their correlation id with others that no CUDA graph launched: which "
    "call and op they belong to isn't known.",
)
IDS_BY_ORDER = Template(
    "ids-by-order",
    Severity.NOTE,
    "{kernels:,} kernels share their correlation id with others: they were matched to launches by their order.",
)
IDS_EXTERNAL = Template(
    "ids-external",
    Severity.NOTE,
    "The trace has no correlation ids: kernels were matched to launches by their External ids.",
)
IDS_REUSED = Template(
    "ids-reused",
    Severity.NOTE,
    "{ids:count correlation id} used again by later launches: each use was matched to its own work by order in time.",
)
