"""How long something takes."""

import time
from collections.abc import Callable


def best(function: Callable[[], object], repeats: int = 3) -> float:
    """CPU seconds of the fastest of a few runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)
