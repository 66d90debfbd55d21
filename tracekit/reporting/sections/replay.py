"""The graph's own error: the measured kernels, replayed without the measured waits."""

from dataclasses import dataclass

from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class ReplayError:
    """The median step as replayed from the measured kernels.

    Attributes:
        step_time_us: The median step as replayed.
        error_pct: Against the measured one.
        derived_wait_us: Waits that were taken out of the measured run and derived again, per step and rank.
        kept_wait_us: Waiting of collectives that is kept as measured, in the median step of a rank.
    """

    step_time_us: float
    error_pct: float
    derived_wait_us: float
    kept_wait_us: float


def build_replay_error(run: MeasuredRun) -> ReplayError:
    """Build the error of the run's self-replay."""
    found = run.self_replay
    return ReplayError(found.step_time_us, found.error_pct, found.derived_wait_us, found.kept_wait_us)
