"""Find the largest batch of a program that a GPU's memory holds."""

from collections.abc import Callable

from predictors import Gpu
from tracekit.capturing.program import CapturedProgram
from tracekit.prediction.memory import USABLE_MEMORY_FRACTION

MAX_BATCH = 1 << 20
MAX_STEPS_BACK = 8
"""Batches that are tried below the one that two small batches tell."""


def find_largest_batch(capture_batch: Callable[[int], CapturedProgram], gpu: Gpu) -> int | None:
    """Find the largest batch whose tensors fit into a GPU's memory; ``None`` if not even one sample does.

    What the tensors hold grows in proportion to the batch, so two batches tell where memory ends::

        batch 1: 5 GiB, batch 2: 6 GiB, 22 GiB usable   ->   18

    Args:
        capture_batch: Captures the program at a batch.
        gpu: The GPU.
    """
    usable = USABLE_MEMORY_FRACTION * gpu.memory_bytes
    one, two = (capture_batch(batch).peak_bytes for batch in (1, 2))
    if one > usable:
        return None
    most = MAX_BATCH if two <= one else min(1 + int((usable - one) / (two - one)), MAX_BATCH)
    for batch in range(most, max(most - MAX_STEPS_BACK, 0), -1):
        if batch == 1 or capture_batch(batch).peak_bytes <= usable:
            return batch
    return max(most - MAX_STEPS_BACK, 1)
