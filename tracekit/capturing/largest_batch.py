"""Find the largest batch of a program that a GPU's memory holds."""

from collections.abc import Callable

from predictors import Gpu
from tracekit.prediction.memory import USABLE_MEMORY_FRACTION

MAX_BATCH = 1 << 20


def find_largest_batch(measure_bytes: Callable[[int], int], gpu: Gpu, most: int = MAX_BATCH) -> int | None:
    """Find the largest batch whose tensors fit into a GPU's memory; ``None`` if not even one sample does.

    What the tensors hold grows about in proportion to the batch, so two batches tell where memory ends. From there it
    goes on in growing strides, and halves what is left of the range::

        batch 1: 5 GiB, batch 2: 6 GiB, 22 GiB usable   ->   18

    Args:
        measure_bytes: Returns what the tensors of a batch hold at most; it grows with the batch.
        gpu: The GPU.
        most: The largest batch that is tried.
    """
    usable = USABLE_MEMORY_FRACTION * gpu.memory_bytes
    one = measure_bytes(1)
    if one > usable:
        return None
    if most == 1 or (two := measure_bytes(2)) > usable:
        return 1
    fits, fails, stride = 2, most + 1, 1
    guess = min(1 + int((usable - one) / (two - one)), most) if two > one else most
    while fails - fits > 1:
        if not fits < guess < fails:
            guess = (fits + fails) // 2
        if measure_bytes(guess) <= usable:
            fits, guess = guess, guess + stride
        else:
            fails, guess = guess, guess - stride
        stride *= 2
    return fits
