"""Sentences on step times with a faster GPU, CPU and network."""

from collections.abc import Iterable, Iterator

from tracekit.messages import Message
from tracekit.messages import predictions as told
from tracekit.reporting.model import Report

GPU_SPEEDS = (2.0, 5.0)
MIN_KEPT_PCT = 5.0
"""Least percent of the step that no speed changes for that to be said."""


def describe_speeds(report: Report) -> Iterator[Message]:
    """Yield the step with a faster GPU, CPU and network, and the speed at which another one limits it."""
    found = report.speeds
    steps = {(gpu, host): step_us for gpu, host, step_us in found.points}
    yield told.GPU_FASTER(
        steps=_describe_steps((speed, steps[speed, 1.0]) for speed in GPU_SPEEDS),
        floor_us=found.gpu_floor_us,
        limit=_describe_limit(found.host_limits_from, "CPU", found.gpu_floor_us, found.kept_us),
    )
    yield told.CPU_FASTER(
        steps=_describe_steps((h, us) for (g, h), us in steps.items() if h is not None and g == 1.0 < h),
        floor_us=found.host_floor_us,
        limit=_describe_limit(found.gpu_limits_from, "GPU", found.host_floor_us, found.kept_us),
    )
    if found.network:
        yield told.NETWORK_FASTER(
            steps=_describe_steps((speed, us) for speed, us in found.network if speed is not None and speed > 1),
            floor_us=found.network[-1][1],
        )
    kept_pct = 100 * found.kept_us / report.source.step_time_us
    if kept_pct >= MIN_KEPT_PCT:
        yield told.STAYS_AT_ANY_SPEED(kept_us=found.kept_us, kept_pct=kept_pct)


def _describe_steps(steps: Iterable[tuple[float, float]]) -> list[Message]:
    return [told.STEP_AT_SPEED(speed=speed, step_us=step_us) for speed, step_us in steps]


def _describe_limit(speed: float | None, resource: str, floor_us: float, kept_us: float) -> Message:
    if speed is None:
        return (told.LIMIT_KEPT if kept_us > floor_us / 2 else told.LIMIT_NEVER)(resource=resource)
    if speed == 1:
        return told.LIMIT_ALREADY(resource=resource)
    return told.LIMIT_FROM_SPEED(speed=speed, resource=resource)
