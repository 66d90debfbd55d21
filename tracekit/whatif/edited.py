"""The result of an edit: the changed run, what the edit changed, and what it saves."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tracekit.arrays import Floats
from tracekit.graph import Graph
from tracekit.messages import Message
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class EditedRun:
    """A run with one thing changed.

    Attributes:
        run: The changed run. It keeps the measured step and the self-replay of the recorded run.
        touched: Number of kernels, calls or edges that changed.
        description: What changed.
    """

    run: MeasuredRun
    touched: int
    description: Message


EditFunction = Callable[[MeasuredRun], EditedRun]


def compute_saving_us(run: MeasuredRun, edited: MeasuredRun) -> float:
    """Compute how much shorter the step of ``edited`` is than that of ``run``; negative if it is longer.

    The median of steps that are each on the scale of its own measured time; negative for an edit that costs.
    """
    return compute_step_time_us(run) - compute_step_time_us(edited)


def compute_step_time_us(run: MeasuredRun) -> float:
    """The step of a run that edits may have changed, on the scale of the measured one."""
    return run.replay_step_time_us(run.kernel_us)


def replace_graph(run: MeasuredRun, graph: Graph) -> MeasuredRun:
    """Return the run with another graph."""
    return replace(run, graph=graph)


def scale_kernel_times(run: MeasuredRun, factor: Floats) -> MeasuredRun:
    """Return the run with scaled kernel times.

    Args:
        run: The run.
        factor: By row of the kernel table; multiplied with the factors of earlier edits.
    """
    before = 1.0 if run.kernel_factor is None else run.kernel_factor
    return replace(run, kernel_factor=before * factor)
