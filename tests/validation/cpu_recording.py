"""Record steps on this CPU as if no other process ran on it, and measure them likewise.

On a shared machine a thread is taken off its core in the middle of ops. Linux tells when (perf_event_open, context
switches of the own thread), so that time can be taken out of a recording; that of measured steps is CPU time::

    wall time   [op 1 ....off....][op 2][op 3 ..off.. ]
    CPU time    [op 1 ][op 2][op 3  ]

With one thread only: where several wait for one another, no thread's time tells the step's.
"""

import ctypes
import json
import mmap
import platform
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function

STEPS = 6
"""Steps of a recording, after its first."""
MEASURED_STEPS = 7
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
"""Number of the system call."""
ATTRIBUTE_BYTES, RING_PAGES = 128, 512
SOFTWARE, DUMMY, SAMPLE_TIME = 1, 9, 1 << 2
SAMPLE_ID_ALL, USE_CLOCKID, CONTEXT_SWITCH = 1 << 18, 1 << 25, 1 << 26
HEAD_OFFSET = 1024
"""Of the ring's header, where its end is told."""
SWITCH_RECORD, SWITCH_OUT = 14, 1 << 13


class OffCore:
    """When the thread was off its core, in nanoseconds of the wall clock."""

    def __init__(self) -> None:
        self.outs: list[int] = []
        self.ins: list[int] = []

    def remove(self, wall_ns: np.ndarray) -> np.ndarray:
        """Return times of the wall clock without what passed off the core before them."""
        count = min(len(self.outs), len(self.ins))
        outs, ins = np.array(self.outs[:count], np.int64), np.array(self.ins[:count], np.int64)
        if not count:
            return wall_ns
        lost = np.concatenate([[0], np.cumsum(ins - outs)])
        begun = np.searchsorted(outs, wall_ns, side="right")
        inside = np.where(begun > 0, np.clip(ins[np.maximum(begun, 1) - 1] - wall_ns, 0, None), 0)
        kept: np.ndarray = wall_ns - (lost[begun] - inside)
        return kept


@contextmanager
def watch_core() -> Iterator[OffCore]:
    """Note when this thread is off its core; nothing where the system doesn't tell."""
    found = OffCore()
    attribute = bytearray(ATTRIBUTE_BYTES)
    struct.pack_into("IIQQQ", attribute, 0, SOFTWARE, ATTRIBUTE_BYTES, DUMMY, 1, SAMPLE_TIME)
    struct.pack_into("Q", attribute, 40, SAMPLE_ID_ALL | USE_CLOCKID | CONTEXT_SWITCH)
    struct.pack_into("i", attribute, 92, time.CLOCK_REALTIME)
    number = PERF_EVENT_OPEN.get(platform.machine())
    given = (ctypes.c_char * ATTRIBUTE_BYTES).from_buffer(attribute)
    file = ctypes.CDLL(None).syscall(number, given, 0, -1, -1, 0) if number else -1
    if file < 0:
        yield found
        return
    ring = mmap.mmap(file, (1 + RING_PAGES) * mmap.PAGESIZE)
    yield found
    _read_switches(ring, found)


def _read_switches(ring: mmap.mmap, found: OffCore) -> None:
    """Read the ring of records; the thread begins and ends on its core."""
    (end,) = struct.unpack_from("Q", ring, HEAD_OFFSET)
    place, size = 0, RING_PAGES * mmap.PAGESIZE
    data = ring[mmap.PAGESIZE :]
    if end > size:
        raise RuntimeError("more context switches than the ring holds: record fewer steps")
    while place < end:
        kind, misc, length = struct.unpack_from("IHH", data, place)
        if kind == SWITCH_RECORD:
            (at_ns,) = struct.unpack_from("Q", data, place + 8)
            (found.outs if misc & SWITCH_OUT else found.ins).append(at_ns)
        place += length


def record(step: Callable[[], None], path: Path) -> Path:
    """Record steps, without the time that the thread was off its core."""
    with watch_core() as off, profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for number in range(1 + STEPS):
            with record_function(f"ProfilerStep#{number}"):
                step()
    profiler.export_chrome_trace(str(path))
    trace = json.loads(path.read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    base = int(trace.get("baseTimeNanoseconds", 0))
    begin = np.array([round(event["ts"] * 1e3) for event in events], np.int64) + base
    end = begin + np.array([round(event["dur"] * 1e3) for event in events], np.int64)
    begin, end = (off.remove(times) - base for times in (begin, end))
    for event, first, last in zip(events, begin.tolist(), end.tolist(), strict=True):
        event |= {"ts": first / 1e3, "dur": (last - first) / 1e3}
    path.write_text(json.dumps(trace), encoding="utf-8")
    return path


def measure_us(step: Callable[[], None]) -> float:
    """Measure the CPU time of a step of one thread: the median of some."""
    step()
    times = []
    for _ in range(MEASURED_STEPS):
        begin = time.process_time_ns()
        step()
        times.append((time.process_time_ns() - begin) / 1e3)
    return median(times)


def build_step(
    build: Callable[..., tuple[object, ...]], *, train: bool = False, bf16: bool = False
) -> Callable[[], None]:
    """Build a function that runs a step of a program: forward, or with a backward pass and SGD's update."""
    torch.manual_seed(0)
    model, *inputs = build()
    assert isinstance(model, torch.nn.Module)
    model.train(train)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def run_step() -> None:
        with torch.set_grad_enabled(train), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            found = model(*inputs)
        if train:
            optimizer.zero_grad()
            found.mean().backward()
            optimizer.step()

    return run_step
