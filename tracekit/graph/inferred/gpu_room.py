"""Kernels that wait for room on the GPU, and a GPU that waits although work was launched."""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints, fill_false
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes
from tracekit.rules import Rule

OCCUPANCY_RULE = Rule(
    "occupancy",
    "A kernel waits while a large kernel of another stream holds every SM.",
    "HTA's trace_diff, 5 % short without the rule; an A100 kernel of 6.2 ms; DeepSeek traces of an H800.",
)
"""Kernels that wait for room because a large kernel of another stream holds every SM until its last wave.

A GPU places the blocks of one kernel before those of a kernel launched later, also across streams (NVIDIA: CUDA C++
Programming Guide, "Concurrent Kernel Execution"; seen on A100 and V100, where the later kernel starts within the last
wave of the large one)::

    stream 7   |################ large kernel ################|
    stream 8          launched ...                         |#### waiting kernel ####|
                                                           ^ within LAST_WAVE_FRACTION of the large kernel's end

So a kernel waited for the large one if it starts later than launch and stream allow, while a kernel with more blocks
than fit at once is about to end on another stream. Blocks that need over half of an SM's shared memory cannot share an
SM: a kernel of such blocks on most SMs keeps out other kernels of such blocks (Hopper GEMMs on two streams of
DeepSeek's training, where communication holds the remaining SMs).
"""

# Threads that an SM or CU holds at most, on any GPU. A kernel with more threads than the GPU holds does not fit at
# once.
MAX_THREADS_PER_SM = 2048
# The last wave as a fraction of the large kernel: 1 % of an A100's kernel of 6.2 ms.
LAST_WAVE_FRACTION = 0.05
# Half of 228 KiB, the most that an SM of any GPU has (NVIDIA: CUDA C++ Programming Guide, compute capability 9.0 and
# 10.0).
HALF_SHARED_MEMORY_BYTES = 114 * 1024
# A persistent kernel leaves some SMs to communication: 20 of 132 in DeepSeek's.
MIN_SM_FRACTION = 0.8
# The last fraction of a kernel whose blocks end one by one: 2 to 6 % of kernels of 0.7 ms on an H800.
ENDING_FRACTION = 0.1
# Number of candidates: the waiting kernel may itself be among the next to end.
MAX_CANDIDATES = 3


def link_occupancy(nodes: Nodes, kernels: pl.DataFrame, sms: int, delayed: Ints) -> Edges:
    """Build edges from the end of the large kernel to the start of the kernel that waited for it.

    ``sms`` are SMs or CUs of the GPU; 0 if not recorded, which gives no edges. Activities ``delayed`` started later
    than launch and stream allow, while no other activity had just ended.
    """
    is_copy = (kernels["kind"] == "memcpy").to_numpy()
    on_sms = ~is_copy | fill_false(kernels["copy_kind"] == "DtoD")
    does_not_fit = fill_false(kernels["blocks"] * kernels["threads_per_block"] > sms * MAX_THREADS_PER_SM) | is_copy
    large = nodes.activities[on_sms & does_not_fit]
    waiting = delayed[on_sms[delayed - nodes.n_host]]
    alone = fill_false(kernels["shared_memory_bytes"] > HALF_SHARED_MEMORY_BYTES)
    on_most = nodes.activities[alone & fill_false(kernels["blocks"] >= MIN_SM_FRACTION * sms)]
    if not (sms and waiting.size and (large.size or on_most.size)):
        return Edges(EdgeKind.OCCUPIED, *[EMPTY_NODES] * 3)
    device = kernels["device"].to_numpy()
    holder = _find_about_to_end(nodes, device, large, waiting, LAST_WAVE_FRACTION)
    kept_out = (holder == NONE) & alone[waiting - nodes.n_host]
    holder[kept_out] = _find_about_to_end(nodes, device, on_most, waiting[kept_out], ENDING_FRACTION)
    holder, waiter = holder[holder != NONE], waiting[holder != NONE]
    late = nodes.start_ns[waiter] - nodes.end_ns[holder]
    lag = np.minimum(late, int(np.median(late)) if late.size else 0)
    return Edges(EdgeKind.OCCUPIED, to_end_vertices(holder), to_start_vertices(waiter), lag)


def _find_about_to_end(nodes: Nodes, device: Ints, large: Ints, waiting: Ints, part: float) -> Ints:
    """Return the large activity on another stream ending next after each start, if at most ``part`` of it is left."""
    if not large.size:
        return np.full(waiting.size, NONE)
    by_end = large[np.argsort(nodes.end_ns[large], kind="stable")]
    start = nodes.start_ns[waiting]
    following = np.searchsorted(nodes.end_ns[by_end], start)
    found = np.full(waiting.size, NONE)
    for place in range(MAX_CANDIDATES):
        holder = by_end[np.minimum(following + place, by_end.size - 1)]
        left = nodes.end_ns[holder] - start
        held: Bools = (
            (left >= 0)
            & (left <= part * nodes.dur_ns[holder])
            & (nodes.start_ns[holder] < start)
            & (nodes.lane[holder] != nodes.lane[waiting])
            & (device[holder - nodes.n_host] == device[waiting - nodes.n_host])
        )
        found = np.where((found == NONE) & held, holder, found)
    return found


GPU_STALLS_RULE = Rule(
    "gpu-stalls",
    "A GPU that is idle although work was launched, without a recorded cause, will be idle as long on the target.",
    "torch-compile-moe, where a GPU is idle for 2.4 ms after some kernels' first launch; up to 20 % short without the "
    "rule.",
)
"""Times in which the GPU was idle although work was launched, and no recorded activity explains the wait.

The first launch of a kernel loads its code, which may keep the GPU idle for milliseconds after the call has returned.
Drivers that submit launches in batches do the same. No dependency derives this time, so it is kept as measured. CUDA
graphs are excluded: they may do work that traces do not show, and :mod:`.stream_gaps` keeps what
all replays share.
"""

# Shorter delays are jitter.
MIN_STALL_NS = 100_000
# Least fraction of the delay in which the GPU was idle.
MIN_IDLE_FRACTION = 0.9


def link_stalls(
    nodes: Nodes, device: Ints, waiting: Ints, ready: Ints, earliest: tuple[Edges, ...]
) -> tuple[Edges, Ints]:
    """Build edges that keep the stall before an activity; return them and the stall before each activity.

    A stall begins when the launch call has returned, the known dependencies are over, and the GPU has nothing else to
    do::

        call    |====|
        GPU     |#### other work ####|<---- stall ---->|#### activity ####|

    Launched activities ``waiting`` started later than anything explains; ``ready`` is the earliest start of each node
    by its known dependencies, whose edges are ``earliest``.
    """
    waiting = waiting[~nodes.is_graph_launch[nodes.launcher[waiting - nodes.n_host]]]
    start, call = nodes.start_ns[waiting], nodes.launcher[waiting - nodes.n_host]
    last = _find_last_before(nodes, device)[waiting - nodes.n_host]
    ended = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    allowed = np.maximum(ready[waiting], nodes.end_ns[call])
    stall = start - np.maximum(allowed, ended)
    stalled = (stall > MIN_STALL_NS) & (stall >= MIN_IDLE_FRACTION * (start - allowed))
    waiting, call, last, stall = (values[stalled] for values in (waiting, call, last, stall))
    kept = np.zeros(nodes.start_ns.size, dtype=np.int64)
    kept[waiting] = stall
    seen = last != NONE
    parts = [
        (to_end_vertices(call), to_start_vertices(waiting), stall),
        (to_end_vertices(last[seen]), to_start_vertices(waiting[seen]), stall[seen]),
        *((e.src[m], e.dst[m], e.lag_ns[m] + kept[e.dst[m] // 2]) for e in earliest for m in [kept[e.dst // 2] > 0]),
    ]
    src, dst, lag = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Edges(EdgeKind.STALL, src, dst, lag), kept[nodes.n_host :]


def _find_last_before(nodes: Nodes, device: Ints) -> Ints:
    """Return the last to end of the activities that started before each one on its device; ``NONE`` without one."""
    found = np.full(nodes.activities.size, NONE)
    for one in np.unique(device):
        mine = nodes.activities[device == one]
        in_order = mine[np.argsort(nodes.start_ns[mine], kind="stable")]
        end = nodes.end_ns[in_order]
        latest = np.maximum.accumulate(np.where(end == np.maximum.accumulate(end), np.arange(end.size), 0))
        found[in_order[1:] - nodes.n_host] = in_order[latest[:-1]]
    return found
