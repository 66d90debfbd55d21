"""Which host a prediction is for: the trace's, any of the usual ones beside the target's GPU, or a known one."""

from dataclasses import dataclass
from math import exp, hypot, log

from predictors import Gpu
from tracekit.errors import RequestError
from tracekit.hosts import HostSpeed, UsualHost, find_usual_host
from tracekit.hosts.usual import INTERVAL_ENDS, HostMixture, find_host
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

STACK_FACTOR = 2.3
"""Factor by which the CPU's own work may take longer or shorter on the stack of another vendor, CUDA or ROCm.

A vLLM job's decodes took 2.3 times what its H100 trace predicted for an MI300X, and 0.42 times the other way, part of
which was the GPU's: before each, the CPU worked for 24.6 ms on the MI300X's machine, for 1.4 on the H100's. Five jobs
without an engine differ by 6 to 10 % only.
"""

HOST_EXPONENT = 0.75
"""Exponent of the ratio of two hosts' speeds in that of the CPU's own work. Ops' own times differ by more than the rest
of that work: part of them are the profiler and the software, which stay with the job. Of 24 predictions of the recorded
pairs, by the host speed of the other trace, 0.70 to 0.81 with each job left out
(tests/validation/results/whole_jobs/trace_pairs.md)."""
OTHER_STACK_EXPONENT = 0.4
"""The same beside another software stack, whose ops and profiler are others: five jobs on H100 and MI300X machines,
1.22 apart by ops, were 6 to 11 % apart."""
KNOWN_HOST_ERROR = 0.093
"""Standard deviation of the logarithm of the CPU's own work that is left then."""
OWN_HOST_WEIGHT = 1.0
"""What a host like the trace's counts among the known machines where the target's isn't given: one of them."""
OWN_HOST_SHARE = 0.7
"""How much of the difference of the trace's host from the mean of all stays in another run on such a host: variances
among machines are 0.06, within one, of which the trace is one run, 0.02 to 0.1 (tracekit/hosts/machines.csv)."""

STACKS = {"nvidia": "CUDA", "amd": "ROCm", "intel": "oneAPI"}
"""Software stacks by the vendor of their GPUs."""

MEASURED_HOST = HostTimes()
CPU_HOST = HostTimes(0.0, 0.0, 0.0)
"""On a CPU, whose ops hold what the framework does around them: nothing runs beside them."""
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

    An unknown host is any of those usual beside the GPU, or one like the trace's. For example, usual hosts are 2 times
    as fast as the trace's, 1 to 4 times in their 90 % interval: the CPU's work takes about 0.6 times as long as
    measured, 0.34 to 1.05 times in its interval.

    Args:
        host: From :func:`parse_host`.
        source: The trace's host; ``None`` if it isn't known, so that it is any of the usual ones.
        gpu: The target's GPU.
        traced_on: The trace's GPU, beside which the CPU may run another software stack than beside the target's.

    Raises:
        RequestError: The trace's host isn't known, and another one was asked for.
    """
    exponent = OTHER_STACK_EXPONENT if changes_stack(traced_on, gpu) else HOST_EXPONENT
    return _widen_for_stack(_find_times(host, source, gpu, exponent), traced_on, gpu)


def _find_times(host: str | float, source: HostSpeed | None, gpu: Gpu, exponent: float) -> HostTimes:
    """Return the factors, without the error of another software stack."""
    if host == SAME:
        return SIMILAR_HOST
    usual = find_usual_host(gpu)
    if source is None:
        if host != UNKNOWN:
            raise RequestError(messages.HOST_UNKNOWN(host=str(host)))
        return _compute_unlike_hosts(usual, exponent)
    here = log(source.speed)
    if isinstance(host, str):
        own = usual.mixture.mean + OWN_HOST_SHARE * (here - usual.mixture.mean)
        hosts = usual.mixture.add_machine(own, OWN_HOST_WEIGHT) if host == UNKNOWN else usual.mixture
    else:
        hosts = HostMixture((1.0,), (log(host),), (0.0,))
    error = KNOWN_HOST_ERROR / exponent
    slow, likely, fast = (hosts.find_quantile(share, error) for share in (INTERVAL_ENDS[0], 0.5, INTERVAL_ENDS[1]))
    return HostTimes(*(exp(exponent * (here - there)) for there in (likely, fast, slow)))


def _compute_unlike_hosts(usual: UsualHost, exponent: float) -> HostTimes:
    """Return the factors where neither host is known: each is any of the usual ones."""
    reach = exponent * hypot(log(usual.high / usual.speed), log(usual.speed / usual.low))
    return HostTimes(1.0, exp(-reach), exp(reach))


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
    return source is not None and source.vendor != gpu.vendor and not gpu.is_cpu


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
    there = usual if isinstance(host, str) else UsualHost.from_mixture(HostMixture((1.0,), (log(host),), (0.0,)))
    likely = find_usual_host(source).speed / there.speed
    below, above = (
        hypot(CAPTURED_HALF_WIDTH, log(ratio)) for ratio in (there.high / there.speed, there.speed / there.low)
    )
    return HostTimes(likely, likely * exp(-below), likely * exp(above))
