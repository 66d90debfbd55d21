"""Secrets in a trace, and copies of it without private names."""

from tracekit.messages.model import error, name_templates, note, warning

SECRET_FOUND = warning(
    "The trace carries what looks like {kind} (in its {locations:list}).",
    "Before you share it, write a copy without it with `tracekit redact`.",
)
REDACTION_OF_DAMAGED = error(
    "{path} is no valid JSON: {reason}.", "A damaged trace can't be redacted; nothing was written."
)
REDACTION_NEEDS_NAME = error("What comes from standard input has no name.", "Name the file to write with {--output}.")
REDACTION_OF_SEVERAL = error("{path} and {others} more were given.", "Redact them one by one.")
REDACTION_OF_OTHER_TOOL = error(
    "{path} was written by {tool}: only the JSON of PyTorch's profiler can be redacted.",
    "Nothing was written. `tracekit export` writes its kernels as JSON, which can be.",
)
REDACTION_OF_OTHER_JSON = error("{path} is JSON, but not a PyTorch profiler trace.", "Nothing was written.")
REDACTION_TOO_LARGE = error("{path} holds more than {limit_bytes} of text, too much to redact.", "Record fewer steps.")
SHARED_FILE_PRIVATE = error(
    "{name} would still hold {kinds:list}; nothing was written.",
    "Please report it as a bug; `tracekit redact` and -o write the trace and the page one by one.",
)
SHARED_WRITTEN = note(
    "Wrote {path}: {files:list}.",
    "Names of ops, kernels and annotations are kept: look through them before you share it.",
)

name_templates(globals())
