"""Units of parameters that sharded jobs gather and scatter at once: each repeated layer, and all the rest."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.prediction.added import communicates
from tracekit.prediction.buckets import one_backward_pass
from tracekit.prediction.layers import Layers
from tracekit.prediction.layout import EXPERT_COPIES, LayoutError, groups
from tracekit.replay.run import Run
from tracekit.workload.phases import BACKWARD
from tracekit.workload.signature import ITEM_BYTES, Tensor

BUFFER_COPY = "fsdp::copy"
"""Op of what copies a unit into or out of its buffer."""

EXPERTS_COPY = "fsdp::copy_experts"
"""The same, of experts that replicas share."""

Apart = Callable[[Tensor], bool]


@dataclass(frozen=True, slots=True)
class Units:
    """What is gathered and scattered, in bytes, in the type that is scattered.

    Attributes:
        layer: Of one layer, without its experts where replicas share these.
        experts: Of one layer's experts where replicas share them.
        rest: Of what lies outside the layers.
        largest: The largest parameter of the rest, likely the embedding.
        dtype: Of most of it.
        gathered: Type that is gathered.
    """

    layer: int
    experts: int
    rest: int
    largest: int
    dtype: str
    gathered: str

    @property
    def item_bytes(self) -> int:
        """Bytes per element."""
        return ITEM_BYTES.get(self.dtype, 4)


def sharding(run: Run) -> pl.DataFrame:
    """The recorded collectives of a job that shards its parameters: rows of the kernel table with their ``row``.

    Args:
        run: The measured run.
    """
    rows = groups(run).filter(pl.col("role") == "dp").select("row", "put_in")
    collective = pl.col("collective").is_in(["all_gather", "reduce_scatter"])
    return run.kernels.with_row_index("row").join(rows, on="row").filter(collective & ~pl.col("put_in"))


def units_of(run: Run, layers: Layers, apart: Apart | None = None) -> Units:
    """The units of a job.

    Parameters of a shape that comes as often as there are layers, or a multiple of it, are the layers'; of a job that
    shards them, what the last backward pass of a step scatters so often.

    Args:
        run: The measured run.
        layers: Its layers.
        apart: Which parameters are experts' that replicas share; None where they don't.

    Raises:
        LayoutError: The trace doesn't tell the parameters, or none of them is the layers'.
    """
    recorded = sharding(run)
    scatters = recorded.filter(pl.col("collective") == "reduce_scatter")
    table = _accumulated(run, apart) if scatters.is_empty() else _scattered(run, layers, scatters)
    number = pl.len() // layers.count
    by_shape = table.group_by("shape", "dtype", "apart").agg(
        pl.first("bytes"), count=number, outside=pl.len() > number * layers.count
    )
    layer, experts = (
        int(by_shape.filter(of).select((pl.col("bytes") * pl.col("count")).sum()).item())
        for of in (~pl.col("apart"), pl.col("apart"))
    )
    if not layer:
        raise LayoutError(f"no parameter comes as often as the {layers.count} layers that repeat.")
    if by_shape.filter(pl.col("apart") & pl.col("outside")).height:
        raise LayoutError(f"experts lie outside the {layers.count} layers that repeat: what gathers them isn't known.")
    dtype = table.group_by("dtype").agg(pl.col("bytes").sum()).sort("bytes", "dtype")["dtype"][-1]
    largest = by_shape.select(pl.col("bytes").filter("outside").max().fill_null(0)).item()
    gathers = recorded.filter(pl.col("collective") == "all_gather")["dtype"].drop_nulls().mode().sort()
    rest = int(table["bytes"].sum()) - (layer + experts) * layers.count
    return Units(layer, experts, rest, int(largest), dtype, gathers[0] if gathers.len() else dtype)


def _accumulated(run: Run, apart: Apart | None) -> pl.DataFrame:
    """What one backward pass accumulates: ``shape``, ``bytes``, ``dtype``, and whether it is ``apart``."""
    each = [
        (str(one.shape), one.numel * one.item_bytes(4), one.dtype or "fp32", apart is not None and apart(one))
        for one in one_backward_pass(run)
    ]
    return pl.DataFrame(each, schema=["shape", "bytes", "dtype", "apart"], orient="row")


def _scattered(run: Run, layers: Layers, scatters: pl.DataFrame) -> pl.DataFrame:
    """What the last backward pass of the first step scatters: ``shape``, ``bytes``, ``dtype``."""
    last = int(np.append(layers.first[1:], True).argmax())
    row = int(layers.kernels["row"][int(layers.passes[last, 1])])
    of_pass = (pl.col("step") == run.kernels["step"][row]) & (pl.col("ts_ns") >= run.kernels["ts_ns"][row])
    scattered = scatters.filter(of_pass).select("bytes", "dtype", shape=pl.col("bytes").cast(pl.String)).drop_nulls()
    return scattered.with_columns(apart=pl.lit(value=False))


def moved_and_copied(run: Run, calls: pl.DataFrame, units: Units) -> pl.DataFrame:
    """Rows of the kernel table for collectives of units, then for the copies of their buffers.

    Args:
        run: The measured run.
        calls: A row each: ``collective``, ``bytes``, ``step``, ``at``, the activity beside which it is launched, and
            ``group``, what its ranks are.
        units: The units.
    """
    nodes = run.graph.nodes
    ran = run.kernels.select("device", "stream")[calls["at"] - nodes.cpu]
    table = calls.with_columns(device=ran["device"], ts_ns=nodes.origin_ns + nodes.start_ns[calls["at"].to_numpy()])
    own = "step", "device", "ts_ns"
    moved = table.select(
        *own, "collective", "bytes", **communicates(run, pl.col("group")), name="collective",
        dtype=pl.lit(units.dtype),
    )  # fmt: skip
    of_experts = pl.col("group") == EXPERT_COPIES
    copied = table.select(
        *own, bytes=2 * pl.col("bytes"), cols=pl.col("bytes") // units.item_bytes, rows=1, flops=0,
        dtype=pl.lit(units.dtype), stream=ran["stream"], family=pl.lit("copy"), name=pl.lit("copy of a shard's buffer"),
        op=pl.when(of_experts).then(pl.lit(EXPERTS_COPY)).otherwise(pl.lit(BUFFER_COPY)),
    )  # fmt: skip
    return pl.concat([moved, copied], how="diagonal_relaxed").with_columns(phase=pl.lit(BACKWARD))
