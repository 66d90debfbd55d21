"""Profile a step while it is captured, so that its trace has the ops, modules and backward nodes of a recorded one.

PyTorch's own profiler notes them. :class:`~tracekit.capturing.ops.Capture` leaves a mark for each call that launches
kernels::

    aten::linear
      aten::addmm
        <mark 7>            # the kernels of call 7 are launched here
    autograd::engine::evaluate_function: AddmmBackward0
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

MARK = "tracekit::call "
"""Prefix of a mark; the number of its call follows."""
MODULE = "nn.Module: "
"""Prefix of a module's name, as the profiler has it."""
OWN_EVENTS = "PythonDispatchMode"
"""The profiler's event of the mode that notes the calls."""
QUIET_LOG = {"KINETO_LOG_LEVEL": "6"}
"""Keeps the profiler from writing to stderr that it starts and stops."""


@dataclass
class OpProfile:
    """The ops, annotations and modules of a step, as the profiler's events, with its own times in microseconds.

    Attributes:
        events: In order of their start, the enclosing ones first.
        marks_us: Start of each call's mark.
        launched_from: Place among the events of the op that encloses each call's mark; -1 without one.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    marks_us: list[float] = field(default_factory=list)
    launched_from: list[int] = field(default_factory=list)

    @property
    def end_us(self) -> float:
        """When the last of them ends."""
        return max([*self.marks_us, *(event["ts"] + event["dur"] for event in self.events)]) + 1


def mark_call(number: int) -> None:
    """Leave the mark of a call; does nothing without a profiler."""
    with torch._C._profiler._RecordFunctionFast(f"{MARK}{number}"):
        pass


@contextmanager
def pause_profiling() -> Iterator[None]:
    """Keep the profiler from noting the ops that compute an op without data."""
    torch._C._autograd._enable_record_function(False)
    try:
        yield
    finally:
        torch._C._autograd._enable_record_function(True)


@contextmanager
def profile_ops() -> Iterator[OpProfile]:
    """Profile the ops that run inside; the profile is complete afterwards."""
    found = OpProfile()
    os.environ.update({name: value for name, value in QUIET_LOG.items() if name not in os.environ})
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
    with profiler, _note_modules():
        yield found
    with TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = msgspec.json.decode(path.read_bytes())["traceEvents"]
    _sort_out(found, [event for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"])


def _sort_out(found: OpProfile, events: list[dict[str, Any]]) -> None:
    """Separate the events of a program from the marks."""
    open_ops: list[tuple[float, int]] = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        start, name = event["ts"], event["name"]
        while open_ops and open_ops[-1][0] <= start:
            open_ops.pop()
        if name.startswith(MARK):
            found.marks_us.append(start)
            found.launched_from.append(open_ops[-1][1] if open_ops else -1)
        elif name != OWN_EVENTS:
            is_module = name.startswith(MODULE)
            found.events.append(event | ({"cat": "python_function"} if is_module else {}))
            if not is_module:
                open_ops.append((start + event["dur"], len(found.events) - 1))


@contextmanager
def _note_modules() -> Iterator[None]:
    """Note when modules run, under the names that the profiler gives them: ``nn.Module: Linear_0``."""
    names: dict[int, str] = {}
    numbers: Counter[str] = Counter()
    running: list[Any] = []

    def begin(module: nn.Module, inputs: object) -> None:
        kind = type(module).__name__
        if id(module) not in names:
            names[id(module)] = f"{MODULE}{kind}_{numbers[kind]}"
            numbers[kind] += 1
        running.append(torch._C._profiler._RecordFunctionFast(names[id(module)]))
        running[-1].__enter__()

    def end(module: nn.Module, inputs: object, output: object) -> None:
        running.pop().__exit__(None, None, None)

    hooks = register_module_forward_pre_hook(begin), register_module_forward_hook(end, always_call=True)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
