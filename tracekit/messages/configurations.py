"""The configuration of the command line, and its documentation."""

from tracekit.messages.model import Severity, Template

CONFIGURATION_UNREADABLE = Template(
    "configuration-unreadable",
    Severity.ERROR,
    "{path} can't be read as TOML: {reason}.",
    "`tracekit config --help` has an example.",
)
CONFIGURATION_KEY_UNKNOWN = Template(
    "configuration-key-unknown",
    Severity.ERROR,
    "{path}: {key!r} is nothing that can be configured.",
    "Did you mean {known:list}?",
)
CONFIGURATION_VALUE = Template(
    "configuration-value",
    Severity.ERROR,
    "{path}: {key} can't have this value.",
    "`tracekit config --help` has an example.",
)
CONFIGURATION_USED = Template("configuration-used", Severity.NOTE, "From {path}: {options}")
"""The options as the command line takes them."""
CONFIGURED_SOURCE_GPU = Template(
    "configured-source-gpu", Severity.NOTE, "From {path}: {--source-gpu} {gpu}, as the trace doesn't tell its GPU."
)
SUBJECT_UNKNOWN = Template(
    "subject-unknown",
    Severity.ERROR,
    "{name!r} is neither the code of a message nor a page of the documentation.",
    "`tracekit explain` lists the pages; a code ends each error.",
)
SUBJECT_MISTYPED = Template(
    "subject-mistyped",
    Severity.ERROR,
    "{name!r} is neither the code of a message nor a page of the documentation.",
    "Did you mean {near:list}?",
)
