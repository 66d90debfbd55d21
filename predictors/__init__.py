"""Kernel latencies on GPUs, from shapes and datasheets; knows nothing about traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predictors.errors import KernelTableError, PredictorError
from predictors.gpu import Gpu
from predictors.gpu_names import Resolution, identify_gpu, list_gpus, load_gpu, resolve_gpu

if TYPE_CHECKING:
    from predictors.latency import Batch, predict

__all__ = [
    "Batch",
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


def __getattr__(name: str) -> Any:
    """`predict` and `Batch` when first asked for: they need numpy and polars, the GPUs' facts don't."""
    if name in ("predict", "Batch"):
        from predictors import latency

        return getattr(latency, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
