"""Build training traces of a transformer too large to run here.

The ops are those of a small one with as many layers, with the large one's shapes.
"""

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

from sample_traces.synthesize import record_cpu_steps, synthesize
from sample_traces.synthetic.models import Shape, train
from sample_traces.synthetic.ops import Op
from tracekit.trace import Trace

SMALL = Shape(layers=0, width=22, heads=2, vocabulary=97, batch=5, tokens=7)
"""Each size that a tensor can have is another number, so that it identifies the size."""


def build_trace_of_length(
    step_us: float,
    shape: Shape,
    name: str,
    predict_us: Callable[[Trace], float],
    rounds: int,
    *,
    recomputes: bool = False,
) -> tuple[Trace, float]:
    """Build training steps whose kernels are scaled until a prediction of them has a given length.

    Args:
        step_us: The length.
        shape: Of the model.
        name: Of the trace.
        predict_us: Predicts the length of a trace.
        rounds: How often the kernels are scaled.
        recomputes: Whether the backward pass computes the layers' activations again.

    Returns:
        The trace, and the kernels' times over those of a roofline.
    """
    steps, slowdown, longer = record_training_steps(shape, recomputes=recomputes), 1.0, 1.0
    for _ in range(rounds):
        slowdown *= longer
        trace = synthesize(steps, name, slowdown).load()
        longer = step_us / predict_us(trace)
    return trace, slowdown


def build_scaled_trace(shape: Shape, name: str, slowdown: float, *, recomputes: bool = False) -> Trace:
    """Build training steps of a model whose kernels take a multiple of a roofline's times."""
    return synthesize(record_training_steps(shape, recomputes=recomputes), name, slowdown).load()


def record_training_steps(shape: Shape, *, recomputes: bool = False) -> list[Op]:
    """Return training steps of the sample traces' model at this shape, in bf16, as the CPU's profiler notes them."""
    small = replace(SMALL, layers=shape.layers)
    steps = record_cpu_steps(train(small, "cpu", recomputes=recomputes))
    sizes = dict(zip(_list_sizes(small), _list_sizes(shape), strict=True))
    for step in steps:
        for op in step.walk():
            if "Input Dims" in op.args:
                op.args["Input Dims"] = _replace_sizes(op.args["Input Dims"], sizes)
            if op.name == "aten::arange":
                op.args["Concrete Inputs"] = [
                    str(sizes.get(int(text), text)) if text.isdigit() else text for text in op.args["Concrete Inputs"]
                ]
    return steps


def _list_sizes(shape: Shape) -> list[int]:
    """Return all that a dimension can be."""
    width, heads, vocabulary, batch, tokens = astuple(shape)[1:]
    return [width, 3 * width, 4 * width, heads, width // heads, vocabulary, batch, tokens, batch * tokens]


def _replace_sizes(dims: Any, sizes: dict[int, int]) -> Any:
    return [_replace_sizes(one, sizes) for one in dims] if isinstance(dims, list) else sizes.get(dims, dims)
