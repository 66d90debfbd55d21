"""The checks, in the order they are shown. To add one: a function of a case, one line here."""

from collections.abc import Callable

from tracekit.doctor import host, ranks, speed, steps, waits, work
from tracekit.doctor.model import Case, Check

CHECKS: tuple[Callable[[Case], Check | None], ...] = (
    work.gpu,
    host.cpu_activity,
    work.shapes,
    work.known_ops,
    work.graphs,
    work.collective_sizes,
    steps.marked,
    steps.steady,
    steps.warm,
    speed.usual,
    host.kernels_without_launch,
    host.launches_without_kernel,
    host.overhead,
    waits.between_streams,
    waits.replay,
    ranks.complete,
    ranks.undamaged,
)
"""``None`` where a check doesn't apply."""
