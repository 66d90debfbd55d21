"""Calls of ops that would launch kernels on a GPU, and the profile of the step around them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class OpProfile:
    """The ops, annotations and modules of a step, as the profiler's events, with its own times in microseconds.

    PyTorch's own profiler notes them while the step is captured, which leaves a mark for each call that
    launches kernels::

        aten::linear
          aten::addmm
            <mark 7>            # the kernels of call 7 are launched here
        autograd::engine::evaluate_function: AddmmBackward0

    Attributes:
        events: In order of their start, the enclosing ones first.
        marks_us: Start of each call's mark.
        launched_from: Place among the events of the op that encloses each call's mark; -1 without one.
        pass_ends_us: When each forward and backward pass of the step ends.
        layers_us: When each layer begins, forward and backward, where that is noted.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    marks_us: list[float] = field(default_factory=list)
    launched_from: list[int] = field(default_factory=list)
    pass_ends_us: list[float] = field(default_factory=list)
    layers_us: list[float] = field(default_factory=list)

    @property
    def end_us(self) -> float:
        """When the last of them and of the passes ends."""
        return max([*self.marks_us, *self.pass_ends_us, *(event["ts"] + event["dur"] for event in self.events)]) + 1

    def find_calls(self, name: str) -> list[int]:
        """Find the places of the calls inside events of a name, which don't overlap."""
        spans = [(event["ts"], event["ts"] + event["dur"]) for event in self.events if event["name"] == name]
        if not spans:
            return []
        starts, ends = np.array(spans).T
        last = np.searchsorted(starts, self.marks_us, side="right") - 1
        inside = (last >= 0) & (np.array(self.marks_us) < ends[last])
        return np.flatnonzero(inside).tolist()


@dataclass(frozen=True)
class Operand:
    """A tensor that a call reads or writes.

    Attributes:
        number: Of its memory.
        dtype: Its type, as the profiler calls it.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def numel(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Call:
    """An op's call with what the profiler would have noted of its inputs, and the kernels that it launches.

    What it reads and writes, and whether a backward pass makes it, is only known of captured programs; what the
    profiler notes of a kernel, ``kernel_args``, is that of a collective.
    """

    op: str
    dims: list[Any]
    types: list[str]
    concrete: list[str]
    kernels: tuple[str, ...]
    strides: list[Any] = field(default_factory=list)
    reads: tuple[Operand, ...] = ()
    writes: tuple[Operand, ...] = ()
    is_backward: bool = False
    kernel_args: Mapping[str, Any] = field(default_factory=dict)
