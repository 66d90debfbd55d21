"""Kernels that wait for room on the GPU: a large kernel of another stream holds every SM until its last blocks run.

A GPU places the blocks of one kernel before those of a kernel launched later, streams or not (NVIDIA: CUDA C++
Programming Guide, "Concurrent Kernel Execution"; seen on A100 and V100, where the later kernel starts within the last
wave of the large one). So a kernel that starts later than its launch and its stream allow, while a kernel of more
blocks than fit at once runs on another stream and is about to end, waited for that one. Blocks that take more than
half of an SM's shared memory can't share one: a kernel of such blocks that has most SMs keeps out others of such blocks
(GEMMs for Hopper do, on two streams of DeepSeek's training, while communication has the rest of the SMs).
"""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NO_NODES, NONE, Nodes

# Threads that an SM or CU holds at most, on any GPU: a kernel of more threads doesn't fit at once.
THREADS_OF_SM = 2048
# The last wave: of an A100's kernel of 6.2 ms it was the last 1 %.
LAST_WAVE = 0.05
# Of 228 KiB, the most that any GPU's SM has (NVIDIA: CUDA C++ Programming Guide, compute capability 9.0 and 10.0).
HALF_OF_SHARED_BYTES = 114 * 1024
# A persistent kernel leaves some SMs to communication: DeepSeek's 20 of 132.
MOST_SMS = 0.8
# Where blocks end one by one: of kernels of 0.7 ms on an H800 it was 2 to 6 %.
ENDING = 0.1
# Of those that end next, the waiting kernel may be one itself.
LOOK_AHEAD = 3


def link(nodes: Nodes, kernels: pl.DataFrame, sms: int, delayed: Ints) -> Edges:
    """Edges from the end of the large kernel to the start of the one that waited for it.

    Args:
        nodes: The nodes.
        kernels: The kernel table (``schema.KERNELS``).
        sms: SMs or CUs of the GPU; 0 if not recorded, and then there are no edges.
        delayed: Activities that started later than launch and stream allow, while no other was just over.
    """
    on_sms = (kernels["kind"] != "memcpy") | (kernels["copy_kind"] == "DtoD").fill_null(False)
    threads = (kernels["blocks"] * kernels["threads_per_block"]).fill_null(0)
    does_not_fit = (threads > sms * THREADS_OF_SM) | (kernels["kind"] == "memcpy")
    large = nodes.activities[(on_sms & does_not_fit).to_numpy()]
    waiting = delayed[on_sms.to_numpy()[delayed - nodes.cpu]]
    alone = (kernels["shared_memory_bytes"] > HALF_OF_SHARED_BYTES).fill_null(False).to_numpy()
    on_most = nodes.activities[alone & (kernels["blocks"] >= MOST_SMS * sms).fill_null(False).to_numpy()]
    if not (sms and waiting.size and (large.size or on_most.size)):
        return Edges(EdgeKind.OCCUPIED, *[NO_NODES] * 3)
    device = kernels["device"].to_numpy()
    holder = _about_to_end(nodes, device, large, waiting, LAST_WAVE)
    kept_out = (holder == NONE) & alone[waiting - nodes.cpu]
    holder[kept_out] = _about_to_end(nodes, device, on_most, waiting[kept_out], ENDING)
    holder, waiter = holder[holder != NONE], waiting[holder != NONE]
    late = nodes.start_ns[waiter] - nodes.end_ns[holder]
    lag = np.minimum(late, int(np.median(late)) if late.size else 0)
    return Edges(EdgeKind.OCCUPIED, ends(holder), starts(waiter), lag)


def _about_to_end(nodes: Nodes, device: Ints, large: Ints, waiting: Ints, part: float) -> Ints:
    """The large activity that ends next after each start, if this part of it at most is left, on another stream."""
    if not large.size:
        return np.full(waiting.size, NONE)
    by_end = large[np.argsort(nodes.end_ns[large], kind="stable")]
    start = nodes.start_ns[waiting]
    following = np.searchsorted(nodes.end_ns[by_end], start)
    found = np.full(waiting.size, NONE)
    for place in range(LOOK_AHEAD):
        holder = by_end[np.minimum(following + place, by_end.size - 1)]
        left = nodes.end_ns[holder] - start
        held: Bools = (
            (left >= 0)
            & (left <= part * nodes.dur_ns[holder])
            & (nodes.start_ns[holder] < start)
            & (nodes.lane[holder] != nodes.lane[waiting])
            & (device[holder - nodes.cpu] == device[waiting - nodes.cpu])
        )
        found = np.where((found == NONE) & held, holder, found)
    return found
