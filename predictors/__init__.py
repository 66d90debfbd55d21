"""Predict GPU kernel latencies from shapes and datasheets, without any knowledge of traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predictors.errors import KernelTableError, PredictorError
from predictors.gpu import Gpu
from predictors.gpu_names import Resolution, identify_gpu, list_gpus, load_gpu, resolve_gpu

if TYPE_CHECKING:
    from predictors.kernel_latency import Batch, predict

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
    """Import ``predict`` and ``Batch`` on first use: they need numpy and polars, the GPU facts do not."""
    if name in ("predict", "Batch"):
        from predictors import kernel_latency

        return getattr(kernel_latency, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
