"""The times of a rank's GPU activities and of the calls that bound them, as flat arrays."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tracekit.arrays import Bools, Ints, compute_least_from, number_pairs
from tracekit.graph.nodes import (
    BLOCKING_CALLS,
    DEVICE_SYNC_CALLS,
    EVENT_SYNC_CALLS,
    ROCM_CLOCK_ERROR_NS,
)
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.trace import RankTrace

TOLERANCE_NS = 4_000
"""Deviation up to which recorded times count as right: the largest of public traces is 3.7 us."""
NEVER_NS = np.iinfo(np.int64).max // 4
MEMORY_CALLS = r"Free$"
"""Calls that wait for the device by CUDA's rules, but returned before it was idle in a public trace (param_resnet)."""
MIN_DEPENDENT_LAUNCH_CAPABILITY = 9
"""Programmatic dependent launch exists from Hopper on (CUDA C++ Programming Guide)."""
PLAIN_LAUNCHES = r"^(cudaLaunchKernel|cuLaunchKernel)(_ptsz)?$|Memcpy|Memset"
"""Calls that can't ask for programmatic dependent launch; cudaLaunchKernelExC and cuLaunchKernelEx can."""
HIP_CALLS = r"^hip"
BLOCKING_COPY = r"DtoH \(Device -> Pageable"


@dataclass(frozen=True, slots=True)
class ActivityTimes:
    """Times of the GPU activities of one rank.

    Attributes:
        start_ns: Recorded starts.
        end_ns: Recorded ends.
        launched_ns: Start of each activity's launch call; ``-NEVER_NS`` without one.
        stream: Number of each activity's stream.
        is_graph: Whether a CUDA graph launched it; its branches may overlap on one stream.
        may_begin_early: Whether it may be a programmatic dependent launch, which begins before the kernel ahead of it
            on its stream has ended: launched by a call that can ask for it, or by none that was recorded.
    """

    start_ns: Ints
    end_ns: Ints
    launched_ns: Ints
    stream: Ints
    is_graph: Bools
    may_begin_early: Bools

    @classmethod
    def from_trace(cls, trace: RankTrace) -> Self:
        """Return the times of a trace's activities, in their order."""
        call = trace.launches.row
        start = trace.activities["ts_ns"].to_numpy()
        (stream,) = number_pairs((trace.activities,), "device", "stream")
        # The last place is that of activities without a call, -1.
        return cls(
            start_ns=start,
            end_ns=start + trace.activities["dur_ns"].to_numpy(),
            launched_ns=np.append(trace.calls["ts_ns"].to_numpy(), -NEVER_NS)[call],
            stream=stream,
            is_graph=np.append(trace.call_names.match(GRAPH_LAUNCH_CALLS), False)[call],
            may_begin_early=~np.append(trace.call_names.match(PLAIN_LAUNCHES), False)[call]
            & _has_dependent_launch(trace),
        )

    @property
    def has_launch(self) -> Bools:
        """Which activities have a recorded launch call."""
        return self.launched_ns > -NEVER_NS

    def move(self, start_ns: Ints, end_ns: Ints) -> Self:
        """Return the times with other starts and ends."""
        return replace(self, start_ns=start_ns, end_ns=end_ns)


def _has_dependent_launch(trace: RankTrace) -> bool:
    """Return whether the GPU has programmatic dependent launch; also where the trace doesn't describe it."""
    if trace.call_names.match(HIP_CALLS).any():
        return False
    capability = trace.device.compute_capability if trace.device else None
    return capability is None or int(capability.partition(".")[0]) >= MIN_DEPENDENT_LAUNCH_CAPABILITY


@dataclass(frozen=True, slots=True)
class BlockingReturns:
    """When calls that waited for activities returned.

    Attributes:
        latest_ns: For each activity the end of the first call that waited for it; ``NEVER_NS`` without one.
        clock_error_ns: Up to which an activity may seem to end after that call on this platform.
    """

    latest_ns: Ints
    clock_error_ns: int


def find_blocking_returns(trace: RankTrace, times: ActivityTimes) -> BlockingReturns:
    """Find when the calls that certainly waited for activities returned.

    A device synchronisation waits for all activities launched before it; a copy to pageable memory makes its own call
    wait. A stream synchronisation doesn't name its stream: with a single stream in use it waits for all, too.
    """
    latest = _find_sync_returns(trace, times)
    copies, returned = _find_copy_returns(trace)
    np.minimum.at(latest, copies, returned)
    return BlockingReturns(latest, ROCM_CLOCK_ERROR_NS if trace.call_names.match(HIP_CALLS).any() else 0)


def find_blocking_calls(trace: RankTrace, times: ActivityTimes) -> Ints:
    """Return the rows of the calls that certainly waited for all activities launched before them, by start."""
    pattern = BLOCKING_CALLS if np.unique(times.stream).size == 1 else DEVICE_SYNC_CALLS
    uncertain = trace.call_names.match(f"{EVENT_SYNC_CALLS}|{MEMORY_CALLS}")
    rows = np.flatnonzero(trace.call_names.match(pattern) & ~uncertain)
    return rows[np.argsort(trace.calls["ts_ns"].to_numpy()[rows], kind="stable")]


def _find_sync_returns(trace: RankTrace, times: ActivityTimes) -> Ints:
    """Find the first return of a synchronisation that began after each activity's launch."""
    rows = find_blocking_calls(trace, times)
    begun, lasted = (trace.calls[name].to_numpy()[rows] for name in ("ts_ns", "dur_ns"))
    first = np.append(compute_least_from(begun + lasted), NEVER_NS)
    latest: Ints = first[np.searchsorted(begun, times.launched_ns, side="right")]
    return np.where(times.has_launch, latest, NEVER_NS)


def _find_copy_returns(trace: RankTrace) -> tuple[Ints, Ints]:
    rows = np.flatnonzero((trace.activities["kind"] == "memcpy").to_numpy())
    if rows.size:
        rows = rows[trace.activities["name"][rows].str.contains(BLOCKING_COPY).to_numpy()]
    returned = (trace.calls["ts_ns"] + trace.calls["dur_ns"]).to_numpy()
    return rows, np.append(returned, NEVER_NS)[trace.launches.row[rows]]


def compute_least_of_later(values: Ints, group: Ints) -> Ints:
    """Return the least of the values after each one in its contiguous group; ``NEVER_NS`` after the last."""
    parts = np.split(values, np.flatnonzero(np.diff(group)) + 1)
    least = np.append(np.concatenate([compute_least_from(part) for part in parts])[1:], NEVER_NS)
    least[:-1][group[1:] != group[:-1]] = NEVER_NS
    return least[: values.size]
