"""The layout that a request asks for on its clusters."""

from collections.abc import Mapping
from typing import Any

from tracekit.prediction import Change

NUMBERS = {
    "world_size": "GPUs in use",
    "dp": "Data-parallel ranks",
    "tp": "Tensor-parallel ranks",
    "pp": "Pipeline stages",
    "ep": "Expert-parallel ranks",
    "micro_batches": "Micro-batches",
    "batch": "Times the batch",
}
"""Numbers of a layout, and what the page calls them."""


def change_of(request: Mapping[str, Any]) -> Change:
    """What a request changes in the trace's layout.

    Args:
        request: As the API's ``Ask`` dumps it.
    """
    return Change(**{name: request.get(name) for name in NUMBERS}, sharded=request.get("fsdp") or None)
