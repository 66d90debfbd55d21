"""Embedding tables that a user gives."""

from tracekit.messages.model import Severity, Template

TABLE_MALFORMED = Template(
    "table-malformed",
    Severity.ERROR,
    "{table!r} is no embedding table.",
    "Write [COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]], such as 40Mx128 or 26*1000000x128:20:1.05.",
)
TABLE_BEYOND_BOUNDS = Template(
    "table-beyond-bounds",
    Severity.ERROR,
    "An embedding table can't have {value:,.15g} as its {name}.",
    "Give {least:,.15g} to {most:,.15g}.",
)
