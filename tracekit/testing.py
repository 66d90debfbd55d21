"""Build traces in Kineto's format, for tests of tracekit and of programs built on it.

Examples:
    >>> builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[64, 32], [32, 16]], types=["float", "float"])
    >>> trace = builder.kernel("ampere_sgemm_64x32", 20, 100, launch=10).load()
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from tracekit.ingest import load_bytes
from tracekit.trace import Trace

BASE_NS = 1_700_000_000_000_000_000
MAIN_THREAD = 100
PROCESS = 100

A100 = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 84_990_623_744,
    "computeMajor": 8,
    "computeMinor": 0,
    "numSms": 108,
}


class TraceBuilder:
    """Builder of a trace in today's Kineto format; every method that adds an event returns the builder.

    Times are microseconds from the start of the trace. ``launch`` of a kernel is the start of its launch call.

    Args:
        device: The entry of ``deviceProperties``; ``None`` leaves the GPU unnamed.
    """

    def __init__(self, device: dict[str, Any] | None = A100) -> None:
        self.base_ns, self.name = BASE_NS, "built by hand"
        self.events: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {"schemaVersion": 1, "record_shapes": 1}
        if device is not None:
            self.metadata["deviceProperties"] = [device]
        self._correlation = 0
        self._external_id = 0
        self._python_id = 0

    def op(
        self,
        name: str,
        start: float,
        dur: float,
        *,
        dims: Sequence[Any] | None = None,
        types: Sequence[str] | None = None,
        concrete: Sequence[str] | None = None,
        thread: int = MAIN_THREAD,
        **args: Any,
    ) -> Self:
        """Add a CPU op on ``thread``; ``dims``, ``types`` and ``concrete`` are recorded by record_shapes."""
        self._external_id += 1
        args["External id"] = self._external_id
        for key, value in (("Input Dims", dims), ("Input type", types), ("Concrete Inputs", concrete)):
            if value is not None:
                args[key] = value
        return self.event("cpu_op", name, start, dur, thread, args)

    def kernel(
        self,
        name: str,
        start: float,
        dur: float,
        *,
        launch: float | None = None,
        launch_dur: float = 5,
        call: str = "cudaLaunchKernel",
        thread: int = MAIN_THREAD,
        kind: str = "kernel",
        stream: int = 7,
        **args: Any,
    ) -> Self:
        """Add a GPU activity and, if ``launch`` is given, its launch call at that time."""
        self._correlation += 1
        if launch is not None:
            self.event("cuda_runtime", call, launch, launch_dur, thread, {"correlation": self._correlation})
        args = {"device": 0, "stream": stream, "correlation": self._correlation, **args}
        return self.event(kind, name, start, dur, stream, args, pid=0)

    def call(self, name: str, start: float, dur: float, *, thread: int = MAIN_THREAD, **args: Any) -> Self:
        """Add a runtime call without GPU work, such as cudaDeviceSynchronize."""
        self._correlation += 1
        return self.event("cuda_runtime", name, start, dur, thread, {"correlation": self._correlation, **args})

    def step(self, number: int, start: float, dur: float) -> Self:
        """Add a ``ProfilerStep#number`` annotation."""
        return self.annotation(f"ProfilerStep#{number}", start, dur)

    def annotation(self, name: str, start: float, dur: float, *, thread: int = MAIN_THREAD) -> Self:
        """Add a user annotation."""
        return self.event("user_annotation", name, start, dur, thread, {})

    def overhead(self, name: str, start: float, dur: float) -> Self:
        """Add CUPTI overhead; Kineto writes no thread for it."""
        return self.event("overhead", name, start, dur, 0, {}, pid=-1)

    def python(self, name: str, start: float, dur: float, *, thread: int = MAIN_THREAD) -> Self:
        """Add a call of a Python function, such as ``train.py(12): step``, or of a module, ``nn.Module: Linear_0``."""
        self._python_id += 1
        return self.event("python_function", name, start, dur, thread, {"Python id": self._python_id})

    def event(
        self,
        cat: str,
        name: str,
        start: float,
        dur: float,
        tid: int | str,
        args: dict[str, Any],
        pid: int | str = PROCESS,
    ) -> Self:
        """Add an event with a duration, of any category, with no argument but ``args``."""
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": dur, "args": args}
        self.events.append(event)
        return self

    def flow(self, cat: str, number: int, start: float, tid: int, *, is_end: bool, pid: int = PROCESS) -> Self:
        """Add one end of a flow, such as the ``ac2g`` from a launch to its kernel, of which ``number`` is the id."""
        end = {"ph": "f" if is_end else "s", "id": number, "pid": pid, "tid": tid, "ts": start}
        self.events.append(end | {"cat": cat, "name": cat} | ({"bp": "e"} if is_end else {}))
        return self

    def instant(self, name: str, start: float, *, pid: str = "", tid: str = "") -> Self:
        """Add an event without a duration, such as the end of the profiler's window."""
        self.events.append({"ph": "i", "s": "g", "name": name, "pid": pid, "tid": tid, "ts": start})
        return self

    def label(self, kind: str, start: float, pid: int, tid: int, args: dict[str, Any]) -> Self:
        """Add a name or label of a process or thread, for viewers; ``kind`` is ``process_name`` or the like."""
        self.events.append({"name": kind, "ph": "M", "ts": start, "pid": pid, "tid": tid, "args": args})
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as the profiler would write it."""
        return {
            **self.metadata,
            "baseTimeNanoseconds": self.base_ns,
            "traceEvents": self.events,
            "traceName": self.name,
        }

    def to_json(self) -> bytes:
        """Return the file that the profiler would write."""
        return json.dumps(self.to_dict()).encode()

    def to_file(self, *, compress: bool) -> bytes:
        """Return the file that the profiler would write, compressed with gzip or not."""
        data = self.to_json()
        return gzip.compress(data, mtime=0) if compress else data

    def save(self, path: str | Path) -> Path:
        """Write the trace to ``path``, compressed if its name ends in ``.gz``."""
        path = Path(path)
        path.write_bytes(self.to_file(compress=path.suffix == ".gz"))
        return path

    def load(self, *, stacks: bool = False) -> Trace:
        """Return the trace as ``tracekit.load`` does."""
        return load_bytes(msgspec.json.encode(self.to_dict()), self.name, stacks=stacks)
