"""Embedding tables that a user gives."""

from tracekit.messages.model import error, name_templates

TABLE_MALFORMED = error(
    "{table!r} is no embedding table.",
    "Write [COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]], such as 40Mx128 or 26*1000000x128:20:1.05.",
)
TABLE_BEYOND_BOUNDS = error(
    "An embedding table can't have {value:,.15g} as its {name}.", "Give {least:,.15g} to {most:,.15g}."
)

name_templates(globals())
