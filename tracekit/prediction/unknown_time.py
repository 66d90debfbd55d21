"""How long what the trace doesn't explain takes on a target: likely, at least and at most."""

from tracekit.replay.engine import UnknownTimes


def list_unknown_times(ratio: float, *, is_same_gpu: bool) -> tuple[UnknownTimes, UnknownTimes, UnknownTimes]:
    """Return the likely, the low and the high factors on time of unknown origin.

    Work that isn't recorded likely scales like the recorded kernels, a gap likely stays. Either may be anything from no
    time at all to all of it; where kernels take longer, to as much longer.

    Args:
        ratio: Predicted over measured time of the recorded kernels.
        is_same_gpu: Whether the target is the trace's own GPU, on which all of it was measured.
    """
    likely, most = UnknownTimes(unrecorded=ratio), max(ratio, 1.0)
    if is_same_gpu:
        return likely, likely, likely
    return likely, UnknownTimes(0.0, 0.0), UnknownTimes(most, most)


def divide_sums(predicted_ps: int, measured_ps: int) -> float:
    """Divide sums of kernel times in whole picoseconds; 1 without any measured time."""
    return predicted_ps / measured_ps if measured_ps else 1.0
