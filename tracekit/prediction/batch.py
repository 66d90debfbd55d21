"""How many samples or tokens a rank works through in a step, where its first layers tell."""

import json
import math
from dataclasses import dataclass

import polars as pl

from tracekit.replay.run import Run

FIRST_LAYERS = {
    "aten::embedding": ("tokens", 0, 1),
    "aten::conv2d": ("samples", 1, 0),
    "aten::conv1d": ("samples", 1, 0),
    "aten::conv3d": ("samples", 1, 0),
}
"""What they count, which input is the weights and which the batch: its elements (tokens) or first axis (samples)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one rank works through in a step.

    Attributes:
        size: How much.
        unit: Of what: 'samples' or 'tokens'.
    """

    size: float
    unit: str


def recognise_batch(run: Run) -> Batch | None:
    """The batch of a traced step; None where its first layer is neither a convolution nor an embedding with shapes.

    Args:
        run: The measured run.
    """
    step = run.chosen.row(0, named=True)
    layers = _outermost(
        run.trace.ops.filter(
            pl.col("name").is_in(list(FIRST_LAYERS))
            & pl.col("input_dims").is_not_null()
            & pl.col("ts_ns").is_between(step["start_ns"], step["end_ns"])
        )
    )
    if layers.is_empty():
        return None
    first, dims = layers.row(0, named=True)["name"], [json.loads(text) for text in layers["input_dims"]]
    unit, weight, data = FIRST_LAYERS[first]
    same = [
        row for row, name in zip(dims, layers["name"], strict=True) if name == first and row[weight] == dims[0][weight]
    ]
    sizes = [math.prod(row[data]) if unit == "tokens" else row[data][0] for row in same]
    return Batch(float(sum(sizes)), unit)


def _outermost(ops: pl.DataFrame) -> pl.DataFrame:
    """Without those that run within another: autocast calls a layer anew from within itself."""
    ended = (pl.col("ts_ns") + pl.col("dur_ns")).cum_max().shift().over("pid", "tid")
    return ops.sort("ts_ns", -pl.col("dur_ns")).filter((pl.col("ts_ns") >= ended).fill_null(True))
