"""Kernel latencies on GPUs, from shapes and datasheets; knows nothing about traces."""

from predictors.errors import KernelTableError, PredictorError
from predictors.gpu import Gpu, Resolution, identify_gpu, list_gpus, load_gpu, resolve_gpu
from predictors.predict import predict

__all__ = [
    "Gpu",
    "KernelTableError",
    "PredictorError",
    "Resolution",
    "identify_gpu",
    "list_gpus",
    "load_gpu",
    "predict",
    "resolve_gpu",
]
