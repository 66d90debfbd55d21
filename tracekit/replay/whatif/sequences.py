"""Launches that follow each other: what one launch could stand for."""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Bools, Ints
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.replay.run import Run
from tracekit.replay.whatif.launches import blocking, reached_by


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sequences of two and more launches, of one step and thread, without a wait or another launch in between.

    Attributes:
        number: The sequence of each CPU node, also of calls between its launches that wait for nothing; ``NONE`` for
            those in none.
        leads: CPU nodes that come first in theirs.
    """

    number: Ints
    leads: Bools


def sequences(run: Run, launches: Bools) -> Sequences:
    """Sequences of launches.

    Args:
        run: The run.
        launches: Which CPU nodes, all of them launches, may be in one.
    """
    nodes = run.graph.nodes
    order = nodes.in_order(np.arange(nodes.cpu))
    launch = (launches & ~blocking(run))[order]
    idle = _wait_for_nothing(run)[order]
    place = np.stack([nodes.lane[order], _step_of_calls(run, order)])
    resumes = reached_by(run, EdgeKind.HANDOVER)[order]
    new = ~(launch | idle) | resumes
    new[:1] = True
    new[1:] |= ~(launch | idle)[:-1] | (place[:, 1:] != place[:, :-1]).any(axis=0)
    number = np.cumsum(new) - 1
    at = np.arange(order.size)
    first, last = np.full(order.size, order.size), np.full(order.size, NONE)
    np.minimum.at(first, number[launch], at[launch])
    np.maximum.at(last, number[launch], at[launch])
    inside = (at >= first[number]) & (at <= last[number]) & (first < last)[number]
    found, leads = np.full(nodes.cpu, NONE), np.zeros(nodes.cpu, dtype=np.bool_)
    found[order[inside]] = number[inside]
    leads[order[inside & (at == first[number])]] = True
    return Sequences(found, leads)


def _wait_for_nothing(run: Run) -> Bools:
    """Calls that neither launch anything nor wait any more."""
    nodes = run.graph.nodes
    calls = np.arange(nodes.cpu) < nodes.cpu - nodes.marks
    calls[nodes.launcher[nodes.launcher != NONE]] = False
    nothing: Bools = calls & ~blocking(run)
    return nothing


def _step_of_calls(run: Run, order: Ints) -> Ints:
    """The step of each call, in order; calls that launch nothing are counted to the step of the launch before."""
    nodes = run.graph.nodes
    launched = nodes.launcher != NONE
    step = np.full(nodes.cpu, NONE)
    step[nodes.launcher[launched]] = run.kernels["step"].fill_null(NONE).to_numpy()[launched]
    launches = np.zeros(nodes.cpu, dtype=np.bool_)
    launches[nodes.launcher[launched]] = True
    latest = np.maximum.accumulate(np.where(launches[order], np.arange(order.size), 0))
    return step[order[latest]] if order.size else step
