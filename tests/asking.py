"""Ask for predictions of a run by the names of options, as a request has them."""

from collections.abc import Sequence
from typing import Any

from tracekit.prediction import Predictions, predict_run
from tracekit.prediction import sweep as sweeps
from tracekit.prediction.sweep import Sweep
from tracekit.request import PredictRequest, SweepRequest
from tracekit.run import MeasuredRun


def sweep(run: MeasuredRun, **options: Any) -> Sweep:
    """Predict a run in many layouts, with the options of a request."""
    return sweeps.sweep(run, SweepRequest(**options))


def predict(run: MeasuredRun, gpu: str | Sequence[str], **options: Any) -> Predictions:
    """Predict a run on GPUs, with the options of a request."""
    return predict_run.predict(run, PredictRequest(gpu=gpu, **options))
