"""The configuration of the command line, and its documentation."""

from tracekit.messages.model import error, name_templates, note

CONFIGURATION_UNREADABLE = error("{path} can't be read as TOML: {reason}.", "`tracekit config --help` has an example.")
CONFIGURATION_KEY_UNKNOWN = error("{path}: {key!r} is nothing that can be configured.", "Did you mean {known:list}?")
CONFIGURATION_VALUE = error("{path}: {key} can't have this value.", "`tracekit config --help` has an example.")
CONFIGURATION_USED = note("From {path}: {options}")
"""The options as the command line takes them."""
CONFIGURED_SOURCE_GPU = note("From {path}: {--source-gpu} {gpu}, as the trace doesn't tell its GPU.")
SUBJECT_UNKNOWN = error(
    "{name!r} is neither the code of a message nor a page of the documentation.",
    "`tracekit explain` lists the pages; a code ends each error.",
)
SUBJECT_MISTYPED = error(
    "{name!r} is neither the code of a message nor a page of the documentation.", "Did you mean {near:list}?"
)

name_templates(globals())
