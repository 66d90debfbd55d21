"""What an engine is."""

from collections.abc import Callable, Sequence
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
