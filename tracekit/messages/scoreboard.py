"""Kept outcomes of predictions."""

from tracekit.messages.model import error, name_templates, note, warning

INTERVAL_WIDENED = note(
    "The interval is wider than the shipped {shipped:list}: of {outcomes:count kept outcome} of such predictions "
    "{inside} lay inside.",
    "{--no-scoreboard} leaves them out.",
)
INTERVAL_NARROWED = note(
    "The interval is narrower than the shipped {shipped:list}: of {outcomes:count kept outcome} of such predictions "
    "{inside} lay inside.",
    "{--no-scoreboard} leaves them out.",
)
SCOREBOARD_UNREADABLE = warning("The scoreboard can't be read: {reason}.", "`tracekit scoreboard` says where it lies.")
OUTCOMES_SKIPPED = warning(
    "{lines:count line} of the scoreboard skipped, which hold no outcome.", "`tracekit scoreboard` says where it lies."
)
OUTCOME_NOT_WRITTEN = error("The outcome can't be kept in {path}: {reason}.")
OUTCOME_NOT_SCORED = error(
    "Nothing is kept: it takes a prediction, saved with `tracekit predict -o prediction.json`, and the trace recorded "
    "since, of the same job on the predicted GPU."
)
FORECAST_MISSING = error(
    "Nothing is kept: {prediction} was saved by an earlier tracekit.", "Predict again with this one."
)
OUTCOME_KEPT = note("Kept in {path}; `tracekit scoreboard` shows all outcomes.")
OUTCOME_KNOWN = note("This outcome is kept already.")
SCOREBOARD_EMPTY = note("No outcome is kept yet.", "`tracekit compare prediction.json TRACE --keep` keeps one.")

name_templates(globals())
