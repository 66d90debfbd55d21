"""Kept outcomes of predictions."""

from tracekit.messages.model import Severity, Template

INTERVAL_WIDENED = Template(
    "interval-widened",
    Severity.NOTE,
    "The interval is wider than the shipped {shipped:list}: of {outcomes:count kept outcome} of such predictions "
    "{inside} lay inside.",
    "{--no-scoreboard} leaves them out.",
)
INTERVAL_NARROWED = Template(
    "interval-narrowed",
    Severity.NOTE,
    "The interval is narrower than the shipped {shipped:list}: of {outcomes:count kept outcome} of such predictions "
    "{inside} lay inside.",
    "{--no-scoreboard} leaves them out.",
)
SCOREBOARD_UNREADABLE = Template(
    "scoreboard-unreadable",
    Severity.WARNING,
    "The scoreboard can't be read: {reason}.",
    "`tracekit scoreboard` says where it lies.",
)
OUTCOMES_SKIPPED = Template(
    "outcomes-skipped",
    Severity.WARNING,
    "{lines:count line} of the scoreboard skipped, which hold no outcome.",
    "`tracekit scoreboard` says where it lies.",
)
OUTCOME_NOT_WRITTEN = Template("outcome-not-written", Severity.ERROR, "The outcome can't be kept in {path}: {reason}.")
OUTCOME_NOT_SCORED = Template(
    "outcome-not-scored",
    Severity.ERROR,
    "Nothing is kept: it takes a prediction, saved with `tracekit predict -o prediction.json`, and the trace recorded "
    "since, of the same job on the predicted GPU.",
)
FORECAST_MISSING = Template(
    "forecast-missing",
    Severity.ERROR,
    "Nothing is kept: {prediction} was saved by an earlier tracekit.",
    "Predict again with this one.",
)
OUTCOME_KEPT = Template("outcome-kept", Severity.NOTE, "Kept in {path}; `tracekit scoreboard` shows all outcomes.")
OUTCOME_KNOWN = Template("outcome-known", Severity.NOTE, "This outcome is kept already.")
SCOREBOARD_EMPTY = Template(
    "scoreboard-empty",
    Severity.NOTE,
    "No outcome is kept yet.",
    "`tracekit compare prediction.json TRACE --keep` keeps one.",
)
