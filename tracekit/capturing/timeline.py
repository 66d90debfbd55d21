"""Build traces of captured calls: a host that launches one kernel after the other, and a stream that runs them."""

from collections.abc import Iterable, Sequence

from tracekit.capturing.ops import Call
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

GAP_US = 1.0
"""Between kernels that are queued."""
LATENCY_US = 5.0
"""From a launch to its kernel on an idle GPU."""


def build_trace(calls: Sequence[Call], times_us: Iterable[float], host_us: float) -> Trace:
    """Build the trace of a step.

    Args:
        calls: In order.
        times_us: Of their kernels, in order.
        host_us: The host's time for each kernel.
    """
    builder, times = TraceBuilder(device=None), iter(times_us)
    host, done = 0.0, 0.0
    for call in calls:
        span = host_us * len(call.kernels)
        builder.op(call.op, host, 0.99 * span, dims=call.dims, types=call.types, concrete=call.concrete)
        for index, name in enumerate(call.kernels):
            launch, duration_us = host + host_us * (index + 0.4), next(times)
            start = max(launch + LATENCY_US, done + GAP_US)
            builder.kernel(name, start, duration_us, launch=launch, launch_dur=0.5 * host_us)
            done = start + duration_us
        host += span
    builder.call("cudaDeviceSynchronize", host, max(done + LATENCY_US - host, LATENCY_US))
    return builder.load()
