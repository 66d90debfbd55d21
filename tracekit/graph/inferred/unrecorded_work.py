"""Work of the GPU that the trace doesn't hold, although the CPU waited for it.

A call that only waits returns soon after the last activity that it covers, and a blocking copy of a result to the host
starts soon after it. Where the GPU did nothing recorded for longer, it did something that isn't recorded: kernels that
the profiler lost with their launches, or what a CUDA graph's conditional node repeats::

    CPU   | launches |----------------- cudaStreamSynchronize -----------------|
    GPU      |=== kernel ===|=== kernel ===|......... not recorded .........|
                                           |-- UNRECORDED edge ----------------|
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints, fill_false
from tracekit.graph.blocking_calls import ROCM_CLOCK_ERROR_NS, WAIT_CALLS
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes, find_named_copies
from tracekit.graph.recorded import host_spans
from tracekit.rules import Rule

RULE = Rule(
    "unrecorded-work",
    "A wait of the CPU beyond all recorded GPU work was for work that isn't recorded.",
    "Traces that lost kernels with their launches (pytorch#192021, vllm-ascend#1702). Of 1,063 waits in 87 traces it "
    "takes 2, which end 59 and 60 us late and outside the steps, for such ones.",
)
MIN_LATE_NS = 50_000
"""A wait typically returns 3 to 10 us after the awaited activity."""
MIN_LATE_FRACTION = 0.001
"""Of the call: one of 1.02 s on an H100 returned 53 us late, as its thread had to wake up."""
MAX_OVERHEAD_FRACTION = 0.5
"""Of the time, in which the profiler may have held the call up instead."""
PINNED_COPY_NAME = "Pinned"


@dataclass(frozen=True, slots=True)
class UnrecordedWork:
    """Waits for work that isn't recorded.

    Attributes:
        edges: From the last recorded activity, or the wait's start, to the end of the call or the start of the copy.
        calls: The calls that waited, host nodes.
        copies: The copies that waited.
    """

    edges: Edges
    calls: Ints
    copies: Ints

    @property
    def calls_ns(self) -> Ints:
        """How long each of the calls waited for such work."""
        return self.edges.lag_ns[: self.calls.size]


NO_WORK = UnrecordedWork(Edges(EdgeKind.UNRECORDED, *[EMPTY_NODES] * 3), EMPTY_NODES, EMPTY_NODES)


def find_unrecorded_work(nodes: Nodes, kernels: pl.DataFrame, overheads: pl.DataFrame) -> UnrecordedWork:
    """Find the waits for work that isn't recorded.

    Args:
        nodes: The nodes.
        kernels: The kernel table.
        overheads: What CUPTI cost the CPU.
    """
    calls, copies = nodes.find_calls(WAIT_CALLS), _find_blocking_copies(nodes, kernels)
    if not (nodes.activities.size and calls.size + copies.size):
        return NO_WORK
    launcher = nodes.launcher[copies - nodes.n_host]
    until = np.concatenate([nodes.end_ns[calls], nodes.start_ns[copies]])
    since = np.concatenate([nodes.start_ns[calls], nodes.start_ns[launcher]])
    # Before a copy starts, the driver may pin or stage its memory: 0.13 to 0.21 ms for copies of 0.23 ms on an MI300X.
    own = np.concatenate([(MIN_LATE_FRACTION * nodes.dur_ns[calls]).astype(np.int64), nodes.dur_ns[copies]])
    last, ended, is_idle = _find_last_before(nodes, until)
    late = until - np.maximum(ended, since)
    busy = _build_overhead_spans(nodes, overheads, int(until.max(initial=0)))
    held = busy.measure_covered_ns(np.zeros_like(until), np.maximum(ended, since), until)
    found = is_idle & (late - held > MIN_LATE_NS + own) & (held <= MAX_OVERHEAD_FRACTION * late)
    waits = np.concatenate([calls, launcher])
    source = np.where(ended > since, to_end_vertices(last), to_start_vertices(waits))
    target = np.concatenate([to_end_vertices(calls), to_start_vertices(copies)])
    is_call = np.arange(until.size) < calls.size
    edges = Edges(EdgeKind.UNRECORDED, source[found], target[found], late[found])
    return UnrecordedWork(edges, waits[found & is_call], target[found & ~is_call] // 2)


def _find_blocking_copies(nodes: Nodes, kernels: pl.DataFrame) -> Ints:
    """Find the copies to pageable memory of the host that their calls waited for, as ``.item()`` does.

    The first activity of a stream may wait for work from before the trace.
    """
    to_host = (kernels["kind"] == "memcpy").to_numpy() & fill_false(kernels["copy_kind"] == "DtoH")
    pageable = to_host & ~find_named_copies(kernels, PINNED_COPY_NAME)
    copies = nodes.activities[pageable & (nodes.launcher != NONE)]
    blocked = nodes.end_ns[nodes.launcher[copies - nodes.n_host]] >= nodes.start_ns[copies]
    _, followers = nodes.find_neighbours(nodes.activities)
    kept: Ints = copies[blocked & np.isin(copies, followers)]
    return kept


def _find_last_before(nodes: Nodes, times: Ints) -> tuple[Ints, Ints, Bools]:
    """Find the activity that ended last of those that started before each time, on any GPU of the process.

    Returns:
        It; when it ended; and whether that was before the time, so that nothing recorded was running.
    """
    order = nodes.activities[np.argsort(nodes.start_ns[nodes.activities], kind="stable")]
    reached = np.maximum.accumulate(nodes.end_ns[order])
    latest = order[np.maximum.accumulate(np.where(nodes.end_ns[order] == reached, np.arange(order.size), 0))]
    place = np.searchsorted(nodes.start_ns[order], times) - 1
    ended = np.where(place >= 0, reached[place], np.iinfo(np.int64).min)
    return latest[place], np.minimum(ended, times), ended <= times + ROCM_CLOCK_ERROR_NS


def _build_overhead_spans(nodes: Nodes, overheads: pl.DataFrame, until: int) -> host_spans.HostSpans:
    start = overheads["ts_ns"].to_numpy() - nodes.origin_ns
    return host_spans.merge_intervals(start, start + overheads["dur_ns"].to_numpy(), until + 2)
