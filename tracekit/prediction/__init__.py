"""Predict a traced step on other GPUs and clusters."""

from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest
from tracekit.prediction.edited_runs import predict_edited
from tracekit.prediction.model import Coverage, Prediction, Predictions, RefusedTarget, Target
from tracekit.prediction.predictor import predict
from tracekit.prediction.targets import resolve_targets

__all__ = [
    "Coverage",
    "Layout",
    "LayoutError",
    "LayoutRequest",
    "Prediction",
    "Predictions",
    "RefusedTarget",
    "Target",
    "predict",
    "predict_edited",
    "resolve_targets",
]
