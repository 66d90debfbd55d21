"""The layout that a request asks for on its clusters."""

from collections.abc import Mapping
from typing import Any

from tracekit.prediction import LayoutRequest

LAYOUT_FIELDS = {
    "world_size": "GPUs in use",
    "dp": "Data-parallel ranks",
    "tp": "Tensor-parallel ranks",
    "pp": "Pipeline stages",
    "ep": "Expert-parallel ranks",
    "micro_batches": "Micro-batches",
    "batch": "Times the batch",
}
"""Numeric fields of a layout, with their labels on the page."""


def build_layout_request(request: Mapping[str, Any]) -> LayoutRequest:
    """Build the layout request of a web request.

    Args:
        request: The API's ``Ask`` as a dictionary.
    """
    return LayoutRequest(**{name: request.get(name) for name in LAYOUT_FIELDS}, fsdp=request.get("fsdp") or None)
