"""Kernels that wait for room on the GPU: a large kernel of another stream holds every SM until its last blocks run.

A GPU places the blocks of one kernel before those of a kernel launched later, streams or not (NVIDIA: CUDA C++
Programming Guide, "Concurrent Kernel Execution"; seen on A100 and V100, where the later kernel starts within the last
wave of the large one). So a kernel that starts later than its launch and its stream allow, while a kernel of more
blocks than fit at once runs on another stream and is about to end, waited for that one.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NONE, Nodes

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Threads that an SM or CU holds at most, on any GPU: a kernel of more threads doesn't fit at once.
THREADS_OF_SM = 2048
# The last wave: of an A100's kernel of 6.2 ms it was the last 1 %.
LAST_WAVE = 0.05


def link(nodes: Nodes, kernels: pl.DataFrame, sms: int, delayed: Ints) -> Edges:
    """Edges from the end of the large kernel to the start of the one that waited for it.

    Args:
        nodes: The nodes.
        kernels: The kernel table (``schema.KERNELS``).
        sms: SMs or CUs of the GPU; 0 if not recorded, and then there are no edges.
        delayed: Activities that started later than launch and stream allow, while no other was just over.
    """
    on_sms = (kernels["kind"] != "memcpy") | (kernels["copy_kind"] == "DtoD")
    threads = (kernels["blocks"] * kernels["threads_per_block"]).fill_null(0)
    does_not_fit = (threads > sms * THREADS_OF_SM) | (kernels["kind"] == "memcpy")
    large = nodes.activities[(on_sms & does_not_fit).to_numpy()]
    waiting = delayed[on_sms.to_numpy()[delayed - nodes.cpu]]
    if not (sms and large.size and waiting.size):
        return Edges(EdgeKind.OCCUPIED, *(np.empty(0, dtype=np.int64),) * 3)
    holder = _about_to_end(nodes, kernels["device"].to_numpy(), large, waiting)
    holder, waiter = holder[holder != NONE], waiting[holder != NONE]
    late = nodes.start_ns[waiter] - nodes.end_ns[holder]
    lag = np.minimum(late, int(np.median(late)) if late.size else 0)
    return Edges(EdgeKind.OCCUPIED, ends(holder), starts(waiter), lag)


def _about_to_end(nodes: Nodes, device: Ints, large: Ints, waiting: Ints) -> Ints:
    """The large activity that ends next after each start, if it is in its last wave then, on another stream."""
    by_end = large[np.argsort(nodes.end_ns[large], kind="stable")]
    start = nodes.start_ns[waiting]
    following = np.minimum(np.searchsorted(nodes.end_ns[by_end], start), by_end.size - 1)
    holder = by_end[following]
    left = nodes.end_ns[holder] - start
    held: Bools = (
        (left >= 0)
        & (left <= LAST_WAVE * nodes.dur_ns[holder])
        & (nodes.lane[holder] != nodes.lane[waiting])
        & (device[holder - nodes.cpu] == device[waiting - nodes.cpu])
    )
    return np.where(held, holder, NONE)
