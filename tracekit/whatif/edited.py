"""The result of an edit: the changed program, what the edit changed, and what it saves."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tracekit.arrays import Floats
from tracekit.graph import Graph
from tracekit.messages import Message
from tracekit.program import Program


@dataclass(frozen=True, slots=True)
class EditedProgram:
    """A program with one thing changed.

    Attributes:
        program: The changed program.
        touched: Number of kernels, calls or edges that changed.
        description: What changed.
    """

    program: Program
    touched: int
    description: Message


EditFunction = Callable[[Program], EditedProgram]


def compute_saving_us(program: Program, edited: Program) -> float:
    """Compute how much shorter the step of ``edited`` is than that of ``program``; negative if it is longer.

    The median of steps that are each on the scale of its own measured time; negative for an edit that costs.
    """
    return compute_step_time_us(program) - compute_step_time_us(edited)


def compute_step_time_us(program: Program) -> float:
    """Compute the step time of a program on the scale of the measured one."""
    return program.replay_step_time_us(program.kernel_us)


def replace_graph(program: Program, graph: Graph) -> Program:
    """Return the program with another graph."""
    return replace(program, graph=graph)


def scale_kernel_times(program: Program, factor: Floats) -> Program:
    """Return the program with scaled kernel times.

    Args:
        program: The program.
        factor: By row of the kernel table; multiplied with the factors of earlier edits.
    """
    return replace(program, kernel_factor=program.kernel_factor * factor)
