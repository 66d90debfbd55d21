"""Secrets in a trace, and copies of it without private names."""

from tracekit.messages.model import Severity, Template

SECRET_FOUND = Template(
    "secret-found",
    Severity.WARNING,
    "The trace carries what looks like {kind} (in its {locations:list}).",
    "Before you share it, write a copy without it with `tracekit redact`.",
)
REDACTION_OF_DAMAGED = Template(
    "redaction-of-damaged",
    Severity.ERROR,
    "{path} is no valid JSON: {reason}.",
    "A damaged trace can't be redacted; nothing was written.",
)
REDACTION_NEEDS_NAME = Template(
    "redaction-needs-name",
    Severity.ERROR,
    "What comes from standard input has no name.",
    "Name the file to write with {--output}.",
)
REDACTION_OF_SEVERAL = Template(
    "redaction-of-several", Severity.ERROR, "{path} and {others} more were given.", "Redact them one by one."
)
REDACTION_OF_OTHER_TOOL = Template(
    "redaction-of-other-tool",
    Severity.ERROR,
    "{path} was written by {tool}: only the JSON of PyTorch's profiler can be redacted.",
    "Nothing was written. `tracekit export` writes its kernels as JSON, which can be.",
)
REDACTION_OF_OTHER_JSON = Template(
    "redaction-of-other-json",
    Severity.ERROR,
    "{path} is JSON, but not a PyTorch profiler trace.",
    "Nothing was written.",
)
REDACTION_TOO_LARGE = Template(
    "redaction-too-large",
    Severity.ERROR,
    "{path} holds more than {limit_bytes} of text, too much to redact.",
    "Record fewer steps.",
)
SHARED_FILE_PRIVATE = Template(
    "shared-file-private",
    Severity.ERROR,
    "{name} would still hold {kinds:list}; nothing was written.",
    "Please report it as a bug; `tracekit redact` and -o write the trace and the page one by one.",
)
SHARED_WRITTEN = Template(
    "shared-written",
    Severity.NOTE,
    "Wrote {path}: {files:list}.",
    "Names of ops, kernels and annotations are kept: look through them before you share it.",
)
