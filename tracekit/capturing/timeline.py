"""Build traces of captured calls."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from predictors import Gpu
from tracekit.arrays import Floats
from tracekit.models.captured import FACTS_KEY, CaptureFacts
from tracekit.testing import MAIN_THREAD, PROCESS, TraceBuilder

if TYPE_CHECKING:
    from tracekit.capturing.calls import Call, OpProfile

LAUNCH_US = 5.0
"""From a launch to its kernel on an idle GPU."""
BEFORE = 0.4
"""Part of the host's time for a kernel that passes before the op that launches it."""
LAUNCH_PART = 0.5
"""Part of an op's time that the launch takes."""
FURTHER_KERNEL = 0.15
"""Time of the host for each further kernel of an op, as a part of that for its first: a launch of 5 to 6 us."""
NS_DIGITS = 3
"""Digits of a time in microseconds that traces keep: a kernel mustn't begin a nanosecond before the last one ends."""
WAIT_AFTER_US = 0.01
"""From the last op's end to the wait for all kernels: rounded to one time, the wait would end with the op around it."""


def build_trace(
    calls: "Sequence[Call]", times_us: Iterable[float], host_us: float, profile: "OpProfile | None" = None
) -> TraceBuilder:
    """Build the trace of a step: a host that launches one kernel after the other, and a stream that runs them.

    The host takes the same time for each launching op: a part of it before the op, for what Python and views take.
    Further kernels of an op only take their launch::

        host     |<- before ->[op  launch  ]|<- before ->[op  launch ]|
        stream                         [kernel]                  [kernel]

    Calls and times are in order; ``host_us`` is the host's time for an op with one kernel. Without ``profile``, the ops
    around the calls, an op begins where the one before ends.
    """
    builder, times, done_us = TraceBuilder(device=None), iter(times_us), 0.0
    kernels = np.array([len(call.kernels) for call in calls])
    spans = host_us * np.where(kernels > 0, 1 + FURTHER_KERNEL * (kernels - 1), 0)
    ends = np.cumsum(spans)
    begins = ends - (1 - BEFORE) * spans
    events = _retime(profile, begins, ends) if profile else []
    builder.events.extend(events)
    parents = profile.launched_from if profile else [-1] * len(calls)
    op_begins = begins if profile else ends - spans
    for call, parent, op_begin, begin, end in zip(
        calls, parents, op_begins.tolist(), begins.tolist(), ends.tolist(), strict=True
    ):
        noted: dict[str, Any] = {"Input Strides": call.strides} if call.strides else {}
        if parent >= 0 and events[parent]["name"] == call.op:
            # The profiler leaves out the sizes of long lists of tensors.
            noted |= {"Input Dims": call.dims, "Input type": call.types, "Concrete Inputs": call.concrete}
            events[parent]["args"] = events[parent]["args"] | noted
        else:
            builder.op(
                call.op, op_begin, end - op_begin, dims=call.dims, types=call.types, concrete=call.concrete, **noted
            )
        each = (end - begin) / max(len(call.kernels), 1)
        for index, name in enumerate(call.kernels):
            launch_us, duration_us = begin + each * index, round(next(times), NS_DIGITS)
            start_us = round(max(launch_us + LAUNCH_US, done_us), NS_DIGITS)
            builder.kernel(
                name, start_us, duration_us, launch=launch_us, launch_dur=LAUNCH_PART * each, **call.kernel_args
            )
            done_us = start_us + duration_us
    end_us = float(ends[-1]) + WAIT_AFTER_US
    builder.call("cudaDeviceSynchronize", end_us, max(done_us + LAUNCH_US - end_us, LAUNCH_US))
    return builder


def describe_capture(builder: TraceBuilder, facts: CaptureFacts, gpu: Gpu, name: str) -> None:
    """Add to a trace what it is a capture of, and the GPU whose times it holds."""
    major, _, minor = (gpu.compute_capability or "").partition(".")
    device: dict[str, Any] = {"id": 0, "name": gpu.name, "totalGlobalMem": gpu.memory_bytes, "numSms": gpu.sms}
    if major.isdigit() and minor.isdigit():
        device |= {"computeMajor": int(major), "computeMinor": int(minor)}
    builder.metadata |= {"deviceProperties": [device], FACTS_KEY: facts.to_dict()}
    if facts.ranks > 1:
        builder.metadata["distributedInfo"] = {"rank": 0, "world_size": facts.ranks}
    builder.name = name


def _retime(profile: "OpProfile", begins: Floats, ends: Floats) -> list[dict[str, Any]]:
    """Return a profile's events on the host's clock, on which call i runs from ``begins[i]`` to ``ends[i]``.

    Of the profiler's own times only the order counts, so that each capture of a program gives the same trace.
    """
    starts = np.array([event["ts"] for event in profile.events])
    stops = starts + np.array([event["dur"] for event in profile.events])
    _, order = np.unique(np.concatenate([profile.marks_us, starts, stops]), return_inverse=True)
    marks, starts, stops = np.split(order, np.cumsum([begins.size, starts.size]))
    # Behind a call's mark, before whatever follows, the host's clock has jumped to its end.
    noted = np.concatenate([[-1.0], np.column_stack([marks, marks + 0.5]).ravel(), [order.max() + 1.0]])
    shown = np.concatenate([[0.0], np.column_stack([begins, ends]).ravel(), [ends[-1]]])
    new_starts, new_stops = np.interp(starts, noted, shown).tolist(), np.interp(stops, noted, shown).tolist()
    return [
        {
            "ph": "X",
            "cat": event["cat"],
            "name": event["name"],
            "pid": PROCESS,
            "tid": MAIN_THREAD,
            "ts": start,
            "dur": stop - start,
            "args": event["args"],
        }
        for event, start, stop in zip(profile.events, new_starts, new_stops, strict=True)
    ]
