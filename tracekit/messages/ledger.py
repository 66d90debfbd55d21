"""What became of a file's events: read, left out, changed."""

from tracekit.messages.model import Severity, Template

EVENTS_READ = Template("events-read", Severity.NOTE, "{events:count event} read.")
CATEGORY_NOT_READ = Template(
    "category-not-read",
    Severity.WARNING,
    "{events:count event} left out, of categories that aren't read: {categories:list}.",
    "If that is work of a GPU, predictions lack it.",
)
PHASE_NOT_READ = Template(
    "phase-not-read",
    Severity.NOTE,
    "{events:count event} left out, as they aren't spans of time: {phases:list}.",
)
SPANS_UNMATCHED = Template(
    "spans-unmatched",
    Severity.WARNING,
    "{events:count event} left out, as a begin without an end or an end without a begin.",
    "Record the trace again; events of the thread may be missing.",
)
NAMES_CHANGED = Template(
    "names-changed",
    Severity.NOTE,
    "{names:count name} with control characters or broken UTF-8, which were replaced.",
)
METADATA_NOT_READ = Template(
    "metadata-not-read",
    Severity.NOTE,
    "{keys:count top-level key} left out, longer than {limit_bytes}.",
)
EVENTS_COUNTED = Template(
    "events-counted",
    Severity.NOTE,
    "{read:,} of {events:count event} read; left out: {left_out:list}.",
)
EVENTS_ALL_READ = Template("events-all-read", Severity.NOTE, "all {events:count event} read.")
