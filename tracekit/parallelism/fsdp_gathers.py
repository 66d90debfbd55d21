"""Predict the all-gathers of FSDP pipeline stages before their first micro-batch, and the delay that they cause."""

from dataclasses import dataclass

import numpy as np
import polars as pl

import predictors
from tracekit.arrays import Floats, Ints
from tracekit.comm import Cluster
from tracekit.parallelism.collective_calls import predict_on_cluster
from tracekit.parallelism.fsdp import GATHER_AHEAD_LAYERS
from tracekit.parallelism.fsdp_units import find_fsdp_units
from tracekit.parallelism.layers import RepeatedLayers
from tracekit.parallelism.layout import Layout
from tracekit.run import MeasuredRun
from tracekit.workload.signature import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class StageGathers:
    """The all-gathers of one pass, in microseconds.

    Arrays have an element for what precedes the layers, one for each layer, and one for what follows them.

    Attributes:
        gather_us: Duration of each all-gather.
        copy_us: Duration of the copy out of its buffer, on the compute stream.
        is_early: Whether all chunks but the first have gathered their parameters before their first input arrives.
    """

    gather_us: Floats
    copy_us: Floats
    is_early: bool

    def compute_delays_us(self, forward: Floats, begin: Ints) -> Floats:
        """Compute the delay of each chunk's first forward pass.

        Args:
            forward: Forward time of each element.
            begin: First element of each chunk.
        """
        chunks = zip(*(np.split(times, begin[1:]) for times in (self.gather_us, self.copy_us, forward)), strict=True)
        waits = np.array([_compute_exposed_us(*times) for times in chunks])
        return np.append(waits[0], np.zeros_like(waits[1:])) if self.is_early else waits


def _compute_exposed_us(moved: Floats, copied: Floats, forward: Floats) -> float:
    """Compute the delay of a chunk that gathers its layers one by one, ``GATHER_AHEAD_LAYERS`` (2) ahead of the GPU.

    ::

        new stream     | gather 0 | gather 1 |        | gather 2 |        | gather 3 |
        compute stream            | copy 0, forward 0 | copy 1, forward 1 | copy 2, forward 2 | copy 3, forward 3 |

    Gather 2 waits for forward 0, gather 3 for forward 1. The delay is the end of the last forward minus the sum of all.
    """
    gathered, done = 0.0, np.zeros(moved.size + GATHER_AHEAD_LAYERS)
    for part in range(moved.size):
        gathered = max(gathered, done[part]) + moved[part]
        done[part + GATHER_AHEAD_LAYERS] = (
            max(done[part + GATHER_AHEAD_LAYERS - 1], gathered) + copied[part] + forward[part]
        )
    return float(done[-1] - forward.sum())


def predict_stage_gathers(
    run: MeasuredRun, layers: RepeatedLayers, layout: Layout, cluster: Cluster
) -> tuple[StageGathers, ...]:
    """Predict the all-gathers before the first forward pass of each chunk: likely, least and most.

    The largest parameter outside the layers belongs to the first chunk, the others to the last one. As in PyTorch,
    stages wait for their first input before they gather. In the least estimate all but the first have gathered by then.

    Args:
        run: The measured run.
        layers: Its layers.
        layout: Layout on the cluster.
        cluster: The cluster that connects the replicas.

    Raises:
        LayoutError: The layers' parameters are unknown.
    """
    units = find_fsdp_units(run, layers)
    item_bytes = ITEM_BYTES.get(units.gather_dtype, 4)
    scattered = np.array(
        [units.largest_rest_bytes, *[units.layer_bytes] * layers.count, units.rest_bytes - units.largest_rest_bytes]
    )
    sizes = scattered * item_bytes / units.item_bytes / layout.tp
    call = {
        "collective": "all_gather",
        "dtype": units.gather_dtype,
        "ranks": layout.dp,
        "stride": layout.get_group_stride("dp"),
    }
    calls = pl.DataFrame({"bytes": sizes}).with_columns(
        pl.lit(value).alias(name) for name, value in {**call, "custom": False}.items()
    )
    times = predict_on_cluster(calls, cluster)
    numel = (sizes / item_bytes).astype(np.int64)
    copies = {"family": "copy", "name": "copy of a shard's buffer", "dtype": units.gather_dtype, "rows": 1, "flops": 0}
    table = pl.DataFrame({"cols": numel, "bytes": (2 * sizes).astype(np.int64)})
    copied = predictors.predict(table.with_columns(pl.lit(v).alias(name) for name, v in copies.items()), cluster.gpu)
    moves = sizes > 0
    return tuple(
        StageGathers(times[end].to_numpy() * moves, copied[end].to_numpy() * moves, is_early=end == "low_us")
        for end in ("time_us", "low_us", "high_us")
    )
