"""Predict a traced step on other GPUs and clusters."""

from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest
from tracekit.prediction.model import Coverage, Prediction, Predictions, RefusedTarget, Target
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
    "resolve_targets",
]
