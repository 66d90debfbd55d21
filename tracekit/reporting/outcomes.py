"""Make the outcome of a prediction that the scoreboard keeps."""

from dataclasses import asdict
from datetime import UTC, datetime

from tracekit.errors import TracekitError
from tracekit.messages import predictions as messages
from tracekit.reporting.comparison import Comparison
from tracekit.scoreboard import Outcome


def make_outcome(comparison: Comparison) -> Outcome:
    """Make the outcome of a comparison of a prediction with the trace recorded since.

    Raises:
        TracekitError: It compares something else, or the prediction is of an older version.
    """
    if comparison.scored_pair is None:
        raise TracekitError(messages.OUTCOME_NOT_SCORED())
    predicted, measured = comparison.scored_pair
    if measured.gpu is None or measured.alone:
        raise TracekitError(messages.OUTCOME_NOT_SCORED())
    if predicted.forecast is None:
        raise TracekitError(messages.FORECAST_MISSING(prediction=predicted.label))
    return Outcome(
        **asdict(predicted.forecast), measured_us=measured.step_time_us, date=datetime.now(UTC).date().isoformat()
    )
