"""Which host a prediction is for: the trace's, the usual one beside the target's GPU, or one of a known speed."""

from dataclasses import dataclass
from math import exp, hypot, log

from predictors import Gpu
from tracekit.errors import RequestError
from tracekit.hosts import HostSpeed, UsualHost, find_usual_host
from tracekit.hosts.usual import find_host
from tracekit.messages import requests as messages
from tracekit.parallelism.stragglers import HOST_SPEED_FACTOR

UNKNOWN, SAME, TYPICAL = "unknown", "same", "typical"
TRACED_HOSTS = (UNKNOWN, SAME)
"""Hosts for which the CPU's own work most likely takes as long as in the trace."""
MIN_SPEED, MAX_SPEED = 0.01, 100.0
"""Multiples of the reference host's speed: public traces' hosts lie between 0.1 and 2.3."""


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Factors on the time that the CPU's own work takes: the likely one, and both ends of its interval."""

    likely: float = 1.0
    low: float = 1.0
    high: float = 1.0


CAPTURED_HALF_WIDTH = 0.5
"""Half-width, as a logarithm, of the 90 % interval of the CPU's time for a captured kernel: three programs that it
paced took 32 to 59 us a kernel, a recommender 84 and 113 (predictors/training/measured)."""

STACK_FACTOR = 3.0
"""Factor by which the CPU's own work may take longer or shorter on the stack of another vendor, CUDA or ROCm.

A vLLM job's decodes took 2.3 times what its H100 trace predicted for an MI300X, and 0.42 times the other way, part of
which was the GPU's: before each, the CPU worked for 24.6 ms on the MI300X's machine, for 1.4 on the H100's. Five jobs
without an engine differ by 6 to 10 % only.
"""

STACKS = {"nvidia": "CUDA", "amd": "ROCm", "intel": "oneAPI"}
"""Software stacks by the vendor of their GPUs."""

MEASURED_HOST = HostTimes()
SIMILAR_HOST = HostTimes(1.0, 1 / HOST_SPEED_FACTOR, HOST_SPEED_FACTOR)


def parse_host(host: str | float) -> str | float:
    """Parse a host: ``unknown``, ``same``, ``typical``, a known one's name, or a speed relative to the reference host.

    Raises:
        RequestError: It is none of these.
    """
    text = str(host).strip().lower()
    if text in (UNKNOWN, SAME, TYPICAL):
        return text
    try:
        speed = float(text) if text.isascii() else 0.0
    except ValueError:
        known = find_host(text)
        speed = known.speed if known else 0.0
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise RequestError(messages.HOST_MALFORMED(host=str(host), least=MIN_SPEED, most=MAX_SPEED))
    return speed


def compute_host_times(
    host: str | float, source: HostSpeed | None, gpu: Gpu, traced_on: Gpu | None = None
) -> HostTimes:
    """Compute how much longer the CPU's own work takes on a host than on the trace's.

    An unknown host is most likely like the trace's; its interval holds those usual beside the GPU, too. For example, a
    usual host is 2 times as fast as the trace's, 1 to 4 times in its interval: the CPU's work takes 0.25 to 1.15 times
    as long as measured.

    Args:
        host: From :func:`parse_host`.
        source: The trace's host; ``None`` if it isn't known, so that it is any of the usual ones.
        gpu: The target's GPU.
        traced_on: The trace's GPU, beside which the CPU may run another software stack than beside the target's.

    Raises:
        RequestError: The trace's host isn't known, and another one was asked for.
    """
    if host == UNKNOWN:
        other = _compute_unlike_hosts(find_usual_host(gpu)) if source is None else _find_times(TYPICAL, source, gpu)
        same, other = (_widen_for_stack(one, traced_on, gpu) for one in (SIMILAR_HOST, other))
        return HostTimes(same.likely, min(same.low, other.low), max(same.high, other.high))
    return _widen_for_stack(_find_times(host, source, gpu), traced_on, gpu)


def _find_times(host: str | float, source: HostSpeed | None, gpu: Gpu) -> HostTimes:
    """Return the factors for a host that was given, beside the trace's software."""
    if host == SAME:
        return SIMILAR_HOST
    if source is None:
        raise RequestError(messages.HOST_UNKNOWN(host=str(host)))
    if host == TYPICAL:
        usual = find_usual_host(gpu)
        return HostTimes(*(source.speed / speed for speed in (usual.speed, usual.high, usual.low)))
    ratio = source.speed / float(host)
    return HostTimes(ratio, ratio / HOST_SPEED_FACTOR, ratio * HOST_SPEED_FACTOR)


def _compute_unlike_hosts(usual: UsualHost) -> HostTimes:
    """Return the factors where neither host is known: each is any of the usual ones."""
    reach = exp(hypot(log(usual.high / usual.speed), log(usual.high / usual.speed)))
    return HostTimes(1.0, 1 / reach, reach)


def _widen_for_stack(times: HostTimes, source: Gpu | None, gpu: Gpu) -> HostTimes:
    """Widen the interval of the CPU's own work where it runs another software stack than in the trace."""
    if not changes_stack(source, gpu):
        return times
    below, above = (
        hypot(log(ratio), log(STACK_FACTOR)) for ratio in (times.likely / times.low, times.high / times.likely)
    )
    return HostTimes(times.likely, times.likely * exp(-below), times.likely * exp(above))


def changes_stack(source: Gpu | None, gpu: Gpu) -> bool:
    """Return whether the target has another software stack than the trace."""
    return source is not None and source.vendor != gpu.vendor


def compute_captured_host_times(host: str | float, source: Gpu, gpu: Gpu) -> HostTimes:
    """Compute how much longer the CPU's own work takes than in the trace of a captured program.

    That trace has the CPU that is usual beside its GPU. The interval holds how far the time for a kernel differs among
    programs, and how far hosts do.

    Args:
        host: From :func:`parse_host`; the trace has no host of its own, so it is the usual one unless a speed is given.
        source: The trace's GPU.
        gpu: The target's GPU.
    """
    usual = find_usual_host(gpu)
    speed = usual.speed if isinstance(host, str) else host
    among_hosts = log(usual.high / usual.speed) if isinstance(host, str) else 0.0
    likely, reach = find_usual_host(source).speed / speed, hypot(CAPTURED_HALF_WIDTH, among_hosts)
    return HostTimes(likely, likely * exp(-reach), likely * exp(reach))
