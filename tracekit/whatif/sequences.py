"""Find sequences of launches that one launch could replace."""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.program import Program
from tracekit.whatif.launches import find_blocking_calls, find_calls_reached_by


@dataclass(frozen=True, slots=True)
class LaunchSequences:
    """Sequences of two or more launches of one step and thread, without a wait or another launch in between.

    Attributes:
        sequence_id: Sequence of each CPU node, also of calls between its launches that wait for nothing; ``NONE``
            outside of sequences.
        is_first: Mask of the CPU nodes that begin a sequence.
    """

    sequence_id: Ints
    is_first: Bools


def find_launch_sequences(program: Program, launches: Bools) -> LaunchSequences:
    """Find sequences of launches.

    Args:
        program: The program.
        launches: Mask of the CPU nodes, all of them launches, that may belong to a sequence.
    """
    nodes = program.graph.nodes
    order = nodes.sort_by_lane(np.arange(nodes.n_host))
    launch = (launches & ~find_blocking_calls(program))[order]
    idle = _find_free_calls(program)[order]
    place = np.stack([nodes.lane[order], _assign_steps_to_calls(program, order)])
    resumes = find_calls_reached_by(program, EdgeKind.HANDOVER)[order]
    new = ~(launch | idle) | resumes
    new[:1] = True
    new[1:] |= ~(launch | idle)[:-1] | (place[:, 1:] != place[:, :-1]).any(axis=0)
    number = np.cumsum(new) - 1
    at = np.arange(order.size)
    first, last = np.full(order.size, order.size), np.full(order.size, NONE)
    np.minimum.at(first, number[launch], at[launch])
    np.maximum.at(last, number[launch], at[launch])
    inside = (at >= first[number]) & (at <= last[number]) & (first < last)[number]
    found, leads = np.full(nodes.n_host, NONE), np.zeros(nodes.n_host, dtype=np.bool_)
    found[order[inside]] = number[inside]
    leads[order[inside & (at == first[number])]] = True
    return LaunchSequences(found, leads)


def _find_free_calls(program: Program) -> Bools:
    """Find calls that neither launch anything nor wait."""
    nodes = program.graph.nodes
    calls = np.arange(nodes.n_host) < nodes.n_host - nodes.n_marks
    calls[nodes.launcher[nodes.launcher != NONE]] = False
    nothing: Bools = calls & ~find_blocking_calls(program)
    return nothing


def _assign_steps_to_calls(program: Program, order: Ints) -> Ints:
    """Return the step of each call, in order; calls that launch nothing belong to the previous launch's step."""
    nodes = program.graph.nodes
    launched = nodes.launcher != NONE
    step = np.full(nodes.n_host, NONE)
    step[nodes.launcher[launched]] = program.kernels["step"].fill_null(NONE).to_numpy()[launched]
    launches = np.zeros(nodes.n_host, dtype=np.bool_)
    launches[nodes.launcher[launched]] = True
    latest = np.maximum.accumulate(np.where(launches[order], np.arange(order.size), 0))
    return step[order[latest]] if order.size else step
