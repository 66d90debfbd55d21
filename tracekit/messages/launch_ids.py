"""Ids that join GPU activities to the calls that launched them."""

from tracekit.messages.model import name_templates, note, warning

IDS_AMBIGUOUS = warning(
    "{ambiguous:,} of {kernels:,} kernels share their correlation id with others that no CUDA graph launched: which "
    "call and op they belong to isn't known."
)
IDS_BY_ORDER = note(
    "{kernels:,} kernels share their correlation id with others: they were matched to launches by their order."
)
IDS_EXTERNAL = note("The trace has no correlation ids: kernels were matched to launches by their External ids.")
IDS_REUSED = note(
    "{ids:count correlation id} used again by later launches: each use was matched to its own work by order in time."
)

name_templates(globals())
