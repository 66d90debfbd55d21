"""Why the places of a trace's events in its file aren't known."""

from tracekit.messages.model import Severity, Template

PLACES_WITHOUT_FILE = Template(
    "places-without-file", Severity.ERROR, "{path} is no file here that ends in .json or .gz."
)
PLACES_WITHOUT_JSON = Template("places-without-json", Severity.ERROR, "{path} isn't whole JSON: {reason}.")
PLACES_OF_SEVERAL_RANKS = Template("places-of-several-ranks", Severity.ERROR, "{path} holds several ranks.")
PLACES_CHANGED = Template(
    "places-changed", Severity.ERROR, "{path} has other events than were read from it ({events} of them)."
)
OVERLAY_NOT_POSSIBLE = Template(
    "overlay-not-possible",
    Severity.ERROR,
    "HTA can't lay the critical path over the trace: {reason}",
    "Unpack the trace and load it again.",
)
