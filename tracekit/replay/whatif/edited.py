"""What an edit gives back: the run as it would be, what it touched, and what it saves."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tracekit.arrays import Floats
from tracekit.graph import Graph
from tracekit.replay.run import Run


@dataclass(frozen=True, slots=True)
class Edited:
    """A run with one thing changed.

    Attributes:
        run: As it would be. It keeps the measured step and the replay of the run that was recorded.
        touched: How many kernels, calls, or edges of the graph are changed.
        description: What happened to them, one clause.
    """

    run: Run
    touched: int
    description: str


Edit = Callable[[Run], Edited]


def saving_us(run: Run, edited: Run) -> float:
    """How much shorter the step of ``edited`` is than that of ``run``.

    The median of steps that are each on the scale of its own measured time; negative for an edit that costs.
    """
    return step_time_us(run) - step_time_us(edited)


def step_time_us(run: Run) -> float:
    """The step of a run that edits may have changed, on the scale of the measured one."""
    return run.step_with(run.kernel_us).step_time_us


def with_graph(run: Run, graph: Graph) -> Run:
    """``run`` with another graph."""
    return replace(run, graph=graph)


def with_factors(run: Run, factor: Floats) -> Run:
    """``run`` whose kernels take a multiple of their time.

    Args:
        run: The run.
        factor: By row of the kernel table; comes on top of what earlier edits did.
    """
    before = 1.0 if run.kernel_factor is None else run.kernel_factor
    return replace(run, kernel_factor=before * factor)
