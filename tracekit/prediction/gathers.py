"""What stages that share out their parameters gather before their first micro-batch, and how that holds them up."""

from dataclasses import dataclass

import numpy as np
import polars as pl

import predictors
from tracekit.arrays import Floats, Ints
from tracekit.comm import Cluster
from tracekit.prediction.layers import Layers
from tracekit.prediction.layout import Layout
from tracekit.prediction.messages import on_cluster
from tracekit.prediction.shards import AHEAD
from tracekit.prediction.units import units_of
from tracekit.replay.run import Run
from tracekit.workload.signature import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class Gathers:
    """Gathers of each part of a pass: what lies before the layers, each of them, what lies behind. In microseconds.

    Attributes:
        moved: How long each gather takes.
        copied: How long the copy out of its buffer does, on the stream that computes.
        early: Whether all chunks but the first have gathered theirs before their first input comes.
    """

    moved: Floats
    copied: Floats
    early: bool

    def longer_us(self, forward: Floats, begin: Ints) -> Floats:
        """How much longer the first forward pass of each chunk takes.

        Args:
            forward: Time of each part's forward pass.
            begin: Where each chunk's parts begin.
        """
        chunks = zip(*(np.split(times, begin[1:]) for times in (self.moved, self.copied, forward)), strict=True)
        waits = np.array([_in_the_open(*times) for times in chunks])
        return np.append(waits[0], np.zeros_like(waits[1:])) if self.early else waits


def _in_the_open(moved: Floats, copied: Floats, forward: Floats) -> float:
    """How much longer a chunk takes that gathers its parts one after the other, ``AHEAD`` in front of the GPU."""
    gathered, done = 0.0, np.zeros(moved.size + AHEAD)
    for part in range(moved.size):
        gathered = max(gathered, done[part]) + moved[part]
        done[part + AHEAD] = max(done[part + AHEAD - 1], gathered) + copied[part] + forward[part]
    return float(done[-1] - forward.sum())


def gathers_us(run: Run, layers: Layers, layout: Layout, cluster: Cluster) -> tuple[Gathers, ...]:
    """What chunks gather before their first forward pass: likely, least and most.

    The largest parameter outside the layers is the first chunk's, the other ones the last one's. Stages wait for their
    first input before they gather, as PyTorch's do; at least, all but the first have gathered by then.

    Args:
        run: The measured run.
        layers: Its layers.
        layout: On the cluster.
        cluster: What joins the replicas.

    Raises:
        LayoutError: The trace doesn't tell the layers' parameters.
    """
    units = units_of(run, layers)
    item_bytes = ITEM_BYTES.get(units.gathered, 4)
    scattered = np.array([units.largest, *[units.layer] * layers.count, units.rest - units.largest])
    sizes = scattered * item_bytes / units.item_bytes / layout.tp
    call = {"collective": "all_gather", "dtype": units.gathered, "ranks": layout.dp, "stride": layout.stride("dp")}
    calls = pl.DataFrame({"bytes": sizes}).with_columns(
        pl.lit(value).alias(name) for name, value in {**call, "custom": False}.items()
    )
    times = on_cluster(calls, cluster)
    numel = (sizes / item_bytes).astype(np.int64)
    copies = {"family": "copy", "name": "copy of a shard's buffer", "dtype": units.gathered, "rows": 1, "flops": 0}
    table = pl.DataFrame({"cols": numel, "bytes": (2 * sizes).astype(np.int64)})
    copied = predictors.predict(table.with_columns(pl.lit(v).alias(name) for name, v in copies.items()), cluster.gpu)
    moves = sizes > 0
    return tuple(
        Gathers(times[end].to_numpy() * moves, copied[end].to_numpy() * moves, early=end == "low_us")
        for end in ("time_us", "low_us", "high_us")
    )
