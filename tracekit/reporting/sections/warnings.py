"""What a reader of any figure has to know first."""

from collections.abc import Iterator

from tracekit import secrets
from tracekit.replay.run import Run

# A graph that misses the measured step by more than this has waits that it can't explain.
TRUSTED_ERROR_PCT = 5.0

# Time within CUDA graphs that is kept rather than derived, from which on the reader should know.
MUCH_HIDDEN = 0.05


def build(run: Run) -> tuple[str, ...]:
    """The warnings, one sentence each."""
    return tuple(_warnings(run))


def _warnings(run: Run) -> Iterator[str]:
    yield from run.job_warnings
    yield from run.trace.warnings
    yield from secrets.warnings(run.trace)
    if run.doubt:
        yield run.doubt
    if abs(run.replay.error_pct) > TRUSTED_ERROR_PCT:
        yield (
            f"the replay misses the measured step by {run.replay.error_pct:+.1f} %: the trace holds waits that no "
            "recorded or inferred dependency explains; its predictions are less sure than their intervals say"
        )
    if run.trace.world_size > 1:
        yield f"one of {run.trace.world_size} ranks: waiting for the others is part of the measured collectives"
    hidden = run.graph.hidden_ns / 1e3 / run.measured.step_time_us / run.steps.height
    if hidden > MUCH_HIDDEN:
        yield (
            f"{100 * hidden:.0f} % of the step lies between the kernels of CUDA graphs and is kept as it was: on a "
            "faster GPU the step may be shorter than predicted"
        )
    if run.graph.dropped:
        yield f"{run.graph.dropped} inferred dependencies contradict others and were left out"
