"""What an engine is, and the one that needs nothing: threads of this process."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Maps functions over the ranks of a job."""

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], count_done: Callable[[int], object]
    ) -> list[Result]:
        """Return the function's result of each item, in their order.

        Args:
            function: What to do; it can be imported by its name.
            items: What to do it with.
            count_done: Called with the number of items that are done.

        Raises:
            EngineError: The engine's scheduler is lost, or an item ends the workers.
        """
        ...

    def run_everywhere(self, function: Callable[[Item], object], item: Item) -> list[object]:
        """Call a function once in each process that may have worked on ranks; return each result or exception.

        Raises:
            EngineError: The engine's scheduler is lost.
        """
        ...

    def share_memory(self, memory_bytes: int) -> int:
        """Return how much of the memory that is allowed one of the ranks may take that are worked on at once."""
        ...

    def close(self) -> None:
        """Give back what the engine started."""
        ...


class InProcessEngine:
    """Works on several ranks at a time in this process.

    Args:
        most: Ranks at a time at most; as many as there are processors by default.
    """

    def __init__(self, most: int | None = None) -> None:
        self._threads = max(1, min(most or os.cpu_count() or 1, os.cpu_count() or 1))

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], count_done: Callable[[int], object]
    ) -> list[Result]:
        """Return the function's result of each item; see :meth:`tracekit.engine.Engine.map`."""
        with ThreadPoolExecutor(self._threads) as pool:
            futures = [pool.submit(function, item) for item in items]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    count_done(done)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [future.result() for future in futures]

    def run_everywhere(self, function: Callable[[Item], object], item: Item) -> list[object]:
        """Call the function; return its result."""
        return [function(item)]

    def share_memory(self, memory_bytes: int) -> int:
        """Return how much one rank may take."""
        return memory_bytes // self._threads

    def close(self) -> None:
        """Do nothing: the threads are gone."""
