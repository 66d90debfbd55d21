"""Traces of captured calls, one kernel after the other."""

from collections.abc import Sequence

from standin.capture import Call

from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

GAP_US = 1.0
"""Between kernels that are queued."""
LAUNCH_US = 0.01
"""As if by a CUDA graph: the stand-ins' hosts hold nothing up."""


def built(calls: Sequence[Call], every_us: float) -> Trace:
    """The trace of a step whose kernels all take as long.

    Args:
        calls: In order.
        every_us: How long each kernel takes.
    """
    builder = TraceBuilder(device=None)
    host, now = 0.0, 10.0
    for call in calls:
        span = LAUNCH_US * len(call.kernels) + LAUNCH_US
        builder.op(call.op, host, span, dims=call.dims, types=call.types, concrete=call.concrete)
        for index, name in enumerate(call.kernels):
            builder.kernel(name, now, every_us, launch=host + LAUNCH_US * (index + 0.2), launch_dur=0.5 * LAUNCH_US)
            now += every_us + GAP_US
        host += span + LAUNCH_US
    return builder.load()
