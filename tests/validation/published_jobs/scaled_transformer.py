"""The ops of a model too large to run here: those of a small one with as many layers, under the large one's shapes."""

import json
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

from sample_traces.synthesize import record_cpu_steps, synthesize
from sample_traces.synthetic.models import Shape, train
from sample_traces.synthetic.ops import Op
from tracekit.ingest import load_bytes
from tracekit.trace import Trace

SMALL = Shape(layers=0, width=22, heads=2, vocabulary=97, batch=5, tokens=7)
"""Each size that a tensor can have is another number, so that it tells which one it is."""


def as_long_as(
    step_us: float,
    shape: Shape,
    name: str,
    predicted_us: Callable[[Trace], float],
    rounds: int,
    *,
    recomputes: bool = False,
) -> tuple[Trace, float]:
    """Training steps of a model of this shape, whose kernels are scaled until they take so long; and by how much.

    Args:
        step_us: How long.
        shape: Of the model.
        name: Of the trace.
        predicted_us: How long they take as they are.
        rounds: How often they are scaled.
        recomputes: Whether the backward pass works out the layers' activations again.
    """
    steps, slowdown, longer = training_steps(shape, recomputes=recomputes), 1.0, 1.0
    for _ in range(rounds):
        slowdown *= longer
        trace = _played(steps, name, slowdown)
        longer = step_us / predicted_us(trace)
    return trace, slowdown


def scaled(shape: Shape, name: str, slowdown: float, *, recomputes: bool = False) -> Trace:
    """Training steps of a model of this shape, whose kernels take so many times a roofline's."""
    return _played(training_steps(shape, recomputes=recomputes), name, slowdown)


def training_steps(shape: Shape, *, recomputes: bool = False) -> list[Op]:
    """Return training steps of the sample traces' model at this shape, in bf16, as the CPU's profiler notes them."""
    small = replace(SMALL, layers=shape.layers)
    steps = record_cpu_steps(train(small, "cpu", recomputes=recomputes))
    sizes = dict(zip(_sizes(small), _sizes(shape), strict=True))
    for step in steps:
        for op in step.walk():
            if "Input Dims" in op.args:
                op.args["Input Dims"] = _told(op.args["Input Dims"], sizes)
            if op.name == "aten::arange":
                op.args["Concrete Inputs"] = [
                    str(sizes.get(int(text), text)) if text.isdigit() else text for text in op.args["Concrete Inputs"]
                ]
    return steps


def _played(steps: list[Op], name: str, slowdown: float) -> Trace:
    return load_bytes(json.dumps(synthesize(steps, name, slowdown)).encode(), name)


def _sizes(shape: Shape) -> list[int]:
    """All that a dimension can be."""
    width, heads, vocabulary, batch, tokens = astuple(shape)[1:]
    return [width, 3 * width, 4 * width, heads, width // heads, vocabulary, batch, tokens, batch * tokens]


def _told(dims: Any, sizes: dict[int, int]) -> Any:
    return [_told(one, sizes) for one in dims] if isinstance(dims, list) else sizes.get(dims, dims)
