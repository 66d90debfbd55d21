"""What a traced step would take on other GPUs and clusters."""

from tracekit.prediction.model import Coverage, Prediction, Predictions, Target
from tracekit.prediction.step import predict
from tracekit.prediction.target import targets

__all__ = ["Coverage", "Prediction", "Predictions", "Target", "predict", "targets"]
