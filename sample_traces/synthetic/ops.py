"""The ops and annotations of a profile as a tree."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sample_traces.synthetic.gpu import Kernel

ITEM_BYTES = {"c10::BFloat16": 2, "float": 4, "long int": 8}
IDS = ("External id", "Record function id", "Ev Idx")


@dataclass
class Op:
    """A CPU op or annotation with the ops it calls and the GPU work it starts."""

    name: str
    category: str
    args: dict[str, Any]
    children: list["Op"] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    read_back_bytes: int = 0

    def walk(self) -> Iterator["Op"]:
        """Yield this op and all ops that it calls."""
        yield self
        for child in self.children:
            yield from child.walk()

    def dims(self, index: int) -> list[Any]:
        """Return the shape of an input, a list of shapes for a tensor list."""
        return self.args["Input Dims"][index]

    def dtype(self, index: int) -> str:
        """Return the element type of an input, e.g. c10::BFloat16."""
        return self.args["Input type"][index]

    def strides(self, index: int) -> list[int]:
        """Return the strides of an input."""
        return self.args["Input Strides"][index]

    def sizes(self) -> list[tuple[int, int]]:
        """Return the elements and bytes of each tensor input."""
        inputs = zip(self.args["Input Dims"], self.args["Input type"], strict=True)
        return [(math.prod(dims), math.prod(dims) * ITEM_BYTES[dtype]) for dims, dtype in inputs if dtype in ITEM_BYTES]


def read_steps(path: Path) -> list[Op]:
    """Return the ProfilerStep annotations of a CPU trace with the ops nested in them."""
    events = [
        event
        for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        if event.get("cat") in ("cpu_op", "user_annotation")
    ]
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    root = Op("", "", {})
    open_ops = [(math.inf, root)]
    for event in events:
        while event["ts"] >= open_ops[-1][0]:
            open_ops.pop()
        args = {key: value for key, value in event["args"].items() if key not in IDS}
        op = Op(event["name"], event["cat"], args)
        open_ops[-1][1].children.append(op)
        open_ops.append((event["ts"] + event["dur"], op))
    return root.children


@dataclass(frozen=True)
class Input:
    """An op's input as the profiler notes it: a tensor has a shape, all others a text."""

    dtype: str = ""
    dims: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    text: str = ""


NONE = Input()


def tensor(op: Op, index: int) -> Input:
    """Return a tensor that another op got."""
    return Input(op.dtype(index), tuple(op.dims(index)), tuple(op.strides(index)))


def number(value: object) -> Input:
    """Return a number or a truth value."""
    return Input("Scalar", text=str(value))


def numbers(values: Sequence[int]) -> Input:
    """Return a list of numbers."""
    return Input("ScalarList", text=str(list(values)))


def call(name: str, inputs: Sequence[Input], *children: Op) -> Op:
    """Return an op with what the profiler would note of its inputs."""
    args = {
        "Concrete Inputs": [given.text for given in inputs],
        "Input type": [given.dtype for given in inputs],
        "Input Strides": [list(given.strides) for given in inputs],
        "Input Dims": [list(given.dims) for given in inputs],
    }
    return Op(name, "cpu_op", args, list(children))
