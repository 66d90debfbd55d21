"""A gate: of each kind of step as many recorded ones lie inside the first line's interval as it says, and it is narrow.

The recorded samples are predicted for each other's GPU, the machines of both left out of the known hosts. A kind that
misses names itself; the whole table is the result file of `python -m tests.validation whole_jobs/trace_pairs`.
"""

from collections.abc import Callable
from functools import cache

import pytest

from sample_traces.record import RECORDED
from tests.validation.studies.whole_jobs.trace_pairs import RECORDED_PAIR, Outcome, predict_pairs
from tracekit.prediction.model import Prediction

KINDS: dict[str, tuple[bool, Callable[[Outcome], Prediction | None]]] = {
    "GPU-bound": (True, lambda one: one.predicted),
    "GPU-bound, with that host": (True, lambda one: one.with_host),
    "CPU-bound": (False, lambda one: one.predicted),
    "CPU-bound, with that host": (False, lambda one: one.with_host),
}
"""Whether the GPU bounds the step, and how it is predicted."""
LIMITS = {
    "GPU-bound": (0.85, 1.35),
    "GPU-bound, with that host": (0.85, 1.35),
    "CPU-bound": (0.85, 2.6),
    "CPU-bound, with that host": (0.8, 1.4),
}
"""The least share inside, and the most that the high end may be of the low one in the median."""


@cache
def predict_recorded() -> tuple[Outcome, ...]:
    """Predict each recorded sample for the GPU of the other."""
    return tuple(predict_pairs(RECORDED, *RECORDED_PAIR))


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_of_recorded_steps_hold_and_are_narrow(kind: str) -> None:
    is_gpu_bound, choose = KINDS[kind]
    outcomes = [one for one in predict_recorded() if one.is_gpu_bound is is_gpu_bound]
    found = [(one, predicted) for one in outcomes if (predicted := choose(one))]
    assert len(found) >= 10
    missed = [f"{one.job} {one.direction}" for one, predicted in found if not one.holds(predicted)]
    least, widest = LIMITS[kind]
    assert len(missed) <= (1 - least) * len(found), f"{kind}: outside are {', '.join(missed)}"
    widths = sorted(predicted.high_us / predicted.low_us for _, predicted in found)
    assert widths[len(widths) // 2] <= widest, f"{kind}: in the median {widths[len(widths) // 2]:.2f} times as wide"
