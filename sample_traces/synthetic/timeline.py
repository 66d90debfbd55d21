"""Play ops on a modelled host and GPU stream, and build the trace that the profiler would record."""

from itertools import groupby
from random import Random
from typing import Any

from sample_traces.synthetic.gpu import Kernel, copy_ns, kernel_ns, launch_args
from sample_traces.synthetic.ops import Op
from tracekit.testing import TraceBuilder

Event = dict[str, Any]

PROCESS, MAIN_THREAD, AUTOGRAD_THREAD = 4200, 4200, 4231
DEVICE, STREAM = 0, 7
START_NS = 1_414_456_661_000_000

# Runtime calls: callback id and host time in us, both as real traces have them.
CALLS = {
    "cudaLaunchKernel": (211, 4.8),
    "cudaMemcpyAsync": (41, 6.0),
    "cudaStreamSynchronize": (131, 2.5),
    "cudaDeviceSynchronize": (165, 6.0),
}
LAUNCH_LATENCY = 8.0
STREAM_GAP = 1.2
WAKE_UP = 6.0

# The host's time in us for an op itself, without those that it calls, and between two ops.
VIEW = 0.5
WRAPPER = 1.8
ALLOCATION = 2.2
TENSOR_ITERATOR = 5.0
LIBRARY_CALL = 9.0
MULTI_TENSOR = 20.0
ZERO_GRAD = 45.0
OPTIMIZER_SETUP = 180.0
BETWEEN_PYTHON_CALLS = 12.0
BETWEEN_LOOP_CALLS = 1.0
BETWEEN_AUTOGRAD_NODES = 2.5
BETWEEN_NESTED_OPS = 0.4
THREAD_HANDOVER = 20.0

LIBRARY_OPS = ("aten::addmm", "aten::mm", "aten::_flash_attention_forward", "aten::_flash_attention_backward")


class Timeline:
    """The clocks of host and stream, in ns, and the events so far of CPU ops, between ops, and of calls and kernels.

    One clock serves both host threads, since the main one waits while the autograd thread works.
    """

    def __init__(self, seed: int, slowdown: float = 1.0) -> None:
        self.now = START_NS
        self._slowdown = slowdown
        self.host, self.flows, self.device = (TraceBuilder(device=None) for _ in range(3))
        self._chance = Random(seed)
        self._stream_end = START_NS
        self._work: list[tuple[int, int]] = []
        self._correlation = 1000
        self._forward_ops: dict[int, Event] = {}

    def play(self, op: Op, thread: int = MAIN_THREAD) -> None:
        """Run an op with all that it calls and launches."""
        index, start, first_work = len(self.host.events), self.now, len(self._work)
        args = {"External id": index + 1, "Record function id": 0} | op.args | {"Ev Idx": index}
        event = self.host.event(op.category, op.name, start / 1000, 0.0, thread, args, PROCESS).events[-1]
        self._link_backward(event)
        own_us = _own_us(op)
        self._pass(0.6 * own_us)
        self._play_children(op, thread)
        for kernel in op.kernels:
            self._launch(kernel, index + 1, thread)
        if op.read_back_bytes:
            self._read_back(op.read_back_bytes, index + 1, thread)
        self._pass(0.4 * own_us)
        event["dur"] = (self.now - start) / 1000
        if op.category == "user_annotation":
            self._annotate(op.name, index + 1, self._work[first_work:])

    def synchronize(self) -> None:
        """Wait for the GPU, as the profiler does when it stops."""
        self._pass(BETWEEN_PYTHON_CALLS)
        self._correlation += 1
        self._call("cudaDeviceSynchronize", {}, MAIN_THREAD, self._stream_end)

    def _play_children(self, op: Op, thread: int) -> None:
        gap = BETWEEN_PYTHON_CALLS if op.category == "user_annotation" else BETWEEN_NESTED_OPS
        for in_backward, children in groupby(op.children, _is_autograd_node):
            if in_backward:
                self._play_backward(list(children))
                continue
            previous = ""
            for child in children:
                # A comprehension calls the same small op for each of many tensors.
                self._pass(min(gap, BETWEEN_LOOP_CALLS) if child.name == previous else gap)
                self.play(child, thread)
                previous = child.name

    def _play_backward(self, nodes: list[Op]) -> None:
        self._pass(THREAD_HANDOVER)
        for node in nodes:
            self._pass(BETWEEN_AUTOGRAD_NODES)
            self.play(node, AUTOGRAD_THREAD)
        self._pass(THREAD_HANDOVER)

    def _launch(self, kernel: Kernel, owner: int, thread: int) -> None:
        duration = round(self._slowdown * kernel_ns(kernel, self._chance))
        self._submit("kernel", kernel.name, owner, duration, launch_args(kernel))
        self._call("cudaLaunchKernel", {"External id": owner}, thread)

    def _read_back(self, copied_bytes: int, owner: int, thread: int) -> None:
        """Copy to pageable memory, for which the copy call itself waits."""
        duration = copy_ns(copied_bytes, self._chance)
        args = {"bytes": copied_bytes, "memory bandwidth (GB/s)": copied_bytes / duration}
        self._submit("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", owner, duration, args)
        self._call("cudaMemcpyAsync", {"External id": owner}, thread, self._stream_end)
        self._correlation += 1
        self._call("cudaStreamSynchronize", {"External id": owner}, thread)

    def _submit(self, category: str, name: str, owner: int, duration: int, details: Event) -> None:
        """Put work on the stream, which takes it up after the launch latency and the work before."""
        self._correlation += 1
        start = max(self.now + self._draw(LAUNCH_LATENCY), self._stream_end + self._draw(STREAM_GAP))
        self._stream_end = start + duration
        self._work.append((start, self._stream_end))
        args = {"External id": owner} | ({"queued": 0} if category == "kernel" else {})
        args |= {"device": DEVICE, "context": 1, "stream": STREAM, "correlation": self._correlation}
        self.device.event(category, name, start / 1000, duration / 1000, STREAM, args | details, DEVICE)
        self.device.flow("ac2g", self._correlation, start / 1000, STREAM, is_end=True, pid=DEVICE)

    def _call(self, name: str, owner: Event, thread: int, awaited: int = 0) -> None:
        """Note a runtime call that returns only after the awaited work, if any."""
        cbid, call_us = CALLS[name]
        start = self.now
        self._pass(call_us)
        if awaited:
            self.now = max(self.now, awaited + self._draw(WAKE_UP))
        args = owner | {"cbid": cbid, "correlation": self._correlation}
        submits = name in ("cudaLaunchKernel", "cudaMemcpyAsync")
        self.device.event("cuda_runtime", name, start / 1000, (self.now - start) / 1000, thread, args, PROCESS)
        self.device.flow("ac2g", self._correlation, start / 1000, thread, is_end=not submits, pid=PROCESS)

    def _annotate(self, name: str, owner: int, work: list[tuple[int, int]]) -> None:
        """Project an annotation onto the stream; the profiler widens it by 1 ns on each side."""
        if work:
            start, end = work[0][0] - 1, work[-1][1] + 1
            args = {"External id": owner}
            self.device.event("gpu_user_annotation", name, start / 1000, (end - start) / 1000, STREAM, args, DEVICE)

    def _link_backward(self, event: Event) -> None:
        """Connect a backward node with the last forward op of the same sequence number."""
        sequence = event["args"].get("Sequence number")
        if sequence is None or event["name"].startswith("autograd::engine"):
            return
        if event["args"]["Fwd thread id"] == 0:
            self._forward_ops[sequence] = event
            return
        for is_end, op in enumerate((self._forward_ops[sequence], event)):
            self.flows.flow("fwdbwd", sequence, op["ts"], op["tid"], is_end=bool(is_end), pid=PROCESS)

    def _pass(self, us: float) -> None:
        self.now += self._draw(us)

    def _draw(self, us: float) -> int:
        return round(1000 * us * self._chance.uniform(0.85, 1.2))


def _is_autograd_node(op: Op) -> bool:
    return op.name.startswith("autograd::engine")


def _own_us(op: Op) -> float:
    """Return the host's time for an op without those that it calls."""
    if op.name.startswith("Optimizer"):
        return ZERO_GRAD if "zero_grad" in op.name else OPTIMIZER_SETUP
    if op.name.startswith("aten::_foreach"):
        return MULTI_TENSOR
    if op.kernels:
        return LIBRARY_CALL if op.name in LIBRARY_OPS else TENSOR_ITERATOR
    if op.children:
        return WRAPPER
    return ALLOCATION if op.name.startswith("aten::empty") else VIEW
