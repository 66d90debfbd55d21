"""How long steps take without the profiler."""

import time

import torch


class StepClock:
    """Times steps where the GPU ends them, without making the CPU wait between them."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._moments: list[float] = []

    def mark(self) -> None:
        """A step ends here."""
        if torch.cuda.is_available():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        else:
            self._moments.append(time.perf_counter())

    def steps_us(self) -> list[float]:
        """Each step's time between two marks, in microseconds; waits for the GPU."""
        if not self._events:
            return [1e6 * (after - before) for before, after in zip(self._moments, self._moments[1:], strict=False)]
        self._events[-1].synchronize()
        pairs = zip(self._events, self._events[1:], strict=False)
        return [1e3 * before.elapsed_time(after) for before, after in pairs]
