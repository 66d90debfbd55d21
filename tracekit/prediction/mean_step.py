"""The mean step on a target, by which a run of many steps lasts and costs."""

from collections.abc import Sequence

from tracekit.replay.step_time import StepTime


def bound_mean_step(replays: Sequence[StepTime], likely_us: float, ends_us: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of the mean step's interval: those of its replays, moved as the median step's were.

    Example: replays whose medians are 8, 10 and 13 ms and whose means are 12, 15 and 20 ms; the median's interval was
    widened from 8 and 13 to 7 and 15 ms. The mean's is 12 x 7/8 = 10.5 to 20 x 15/13 = 23.1 ms.

    Args:
        replays: The step with the likely, low and high kernel times.
        likely_us: The mean step.
        ends_us: Ends of the median step's interval.
    """
    medians, means = [one.step_time_us for one in replays], [one.mean_us for one in replays]
    low, high = (
        outermost(means) * (end / outermost(medians) if outermost(medians) else 1.0)
        for outermost, end in zip((min, max), ends_us, strict=True)
    )
    return min(low, likely_us), max(high, likely_us)
