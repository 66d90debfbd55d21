"""Why the places of a trace's events in its file aren't known."""

from tracekit.messages.model import error, name_templates

PLACES_WITHOUT_FILE = error("{path} is no file here that ends in .json or .gz.")
PLACES_WITHOUT_JSON = error("{path} isn't whole JSON: {reason}.")
PLACES_OF_SEVERAL_RANKS = error("{path} holds several ranks.")
PLACES_CHANGED = error("{path} has other events than were read from it ({events} of them).")
OVERLAY_NOT_POSSIBLE = error(
    "HTA can't lay the critical path over the trace: {reason}", "Unpack the trace and load it again."
)

name_templates(globals())
