"""Layers that one GPU has whole, made by hand, for tests of what shares them out."""

from typing import Any

import tracekit as tk
from tracekit.prediction.model import Prediction
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

NODE = "8xa100-sxm-80gb"
MIB = 2**20


class Layers:
    """Ops of 8 us, 10 us apart, ahead of a GPU that runs the kernel of each 1 us behind the one before."""

    dtype = "c10::BFloat16"

    def __init__(self) -> None:
        self.builder, self.now, self.end = TraceBuilder(), 0.0, 100.0

    def runs(self, op: str, dims: list[Any], kernel: str, dur: float) -> None:
        types = [("TensorList" if isinstance(one[0], list) else self.dtype) if one else "" for one in dims]
        self.builder.op(op, self.now + 1, 8, dims=dims, types=types)
        self.builder.kernel(kernel, self.end, dur, launch=self.now + 2)
        self.now, self.end = self.now + 10, self.end + dur + 1

    def backward(self, node: str, dur: float = 9) -> None:
        """The node of the backward pass that what runs next is part of, while it lasts."""
        self.builder.op(f"autograd::engine::evaluate_function: {node}", self.now, dur)

    def accumulates(self, dims: list[int]) -> None:
        """A parameter's gradient is complete with what ran last."""
        self.builder.op("torch::autograd::AccumulateGrad", self.now - 0.8, 0.5, dims=[dims], types=[self.dtype])

    @property
    def run(self) -> MeasuredRun:
        return prepare_run(self.builder.load())

    def on(self, cluster: str = NODE, **change: Any) -> Prediction:
        return tk.predict(self.builder.load(), cluster=cluster, **change)[cluster]
