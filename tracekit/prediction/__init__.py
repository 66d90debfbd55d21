"""What a traced step would take on other GPUs and clusters."""

from tracekit.prediction.edited import predict_edited
from tracekit.prediction.layout import Change, Layout, LayoutError
from tracekit.prediction.model import Coverage, Prediction, Predictions, Refused, Target
from tracekit.prediction.step import predict
from tracekit.prediction.target import targets

__all__ = [
    "Change",
    "Coverage",
    "Layout",
    "LayoutError",
    "Prediction",
    "Predictions",
    "Refused",
    "Target",
    "predict",
    "predict_edited",
    "targets",
]
