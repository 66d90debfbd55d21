"""Run rounds over all ranks of a job."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tracekit.engine import Engine
from tracekit.messages import Message, ProgressCallback, Template

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class FleetRunner:
    """The engine that works on the ranks of a job, and what there is to say of them.

    Attributes:
        engine: Works on the ranks.
        progress: Called with what is being done, and for how many ranks it is.
        warnings: What is wrong with the traces or left out, so far.
    """

    engine: Engine
    progress: ProgressCallback
    warnings: list[Message] = field(default_factory=list)

    def run_round(self, function: Callable[[Item], Result], items: Sequence[Item], stage: Template) -> list[Result]:
        """Apply a function to each rank, and tell the progress."""
        self.progress(stage(done=0, ranks=len(items)))
        return self.engine.map(function, items, lambda done: self.progress(stage(done=done, ranks=len(items))))
