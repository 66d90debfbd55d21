"""Time steps without the profiler."""

import time

import torch


class StepClock:
    """Times steps at their end on the GPU, without synchronizing the CPU between them."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._moments: list[float] = []

    def mark_step_end(self) -> None:
        """Mark the end of a step."""
        if torch.cuda.is_available():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        else:
            self._moments.append(time.perf_counter())

    def compute_step_times_us(self) -> list[float]:
        """Return the time between each two marks in microseconds; synchronizes with the GPU."""
        if not self._events:
            return [1e6 * (after - before) for before, after in zip(self._moments, self._moments[1:], strict=False)]
        self._events[-1].synchronize()
        pairs = zip(self._events, self._events[1:], strict=False)
        return [1e3 * before.elapsed_time(after) for before, after in pairs]
