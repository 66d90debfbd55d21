"""What became of a file's events: read, left out, changed."""

from tracekit.messages.model import name_templates, note, warning

EVENTS_READ = note("{events:count event} read.")
CATEGORY_NOT_READ = warning(
    "{events:count event} left out, of categories that aren't read: {categories:list}.",
    "If that is work of a GPU, predictions lack it.",
)
PHASE_NOT_READ = note("{events:count event} left out, as they aren't spans of time: {phases:list}.")
SPANS_UNMATCHED = warning(
    "{events:count event} left out, as a begin without an end or an end without a begin.",
    "Record the trace again; events of the thread may be missing.",
)
NAMES_CHANGED = note("{names:count name} with control characters or broken UTF-8, which were replaced.")
METADATA_NOT_READ = note("{keys:count top-level key} left out, longer than {limit_bytes}.")
EVENTS_COUNTED = note("{read:,} of {events:count event} read; left out: {left_out:list}.")
EVENTS_ALL_READ = note("all {events:count event} read.")

name_templates(globals())
