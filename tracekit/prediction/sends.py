"""What stages of a pipeline send each other, and how long that holds them up."""

import numpy as np
import polars as pl

from tracekit.arrays import Floats
from tracekit.comm import Cluster, predict
from tracekit.prediction.blocks import widths
from tracekit.prediction.layers import Layers
from tracekit.prediction.layout import Layout, LayoutError
from tracekit.replay.run import Run

HAND_OVER_US = (300.0, 0.0, 600.0)
"""What a send costs beside its transfer, in launches and in waiting for the other end: likely, least and most.

Likely: sends of 10 to 28 MB took 0.38 to 0.76 ms between A100s, of which the transfer is 0.08 to 0.16 ms inside a node
(Qi et al., Zero Bubble Pipeline Parallelism, 2023, table 6), and interleaved schedules, which send more often, lost as
much with each send (table 4). Most is twice that; none where a framework hides it behind computing.
"""


def activation_bytes(run: Run, layers: Layers) -> float:
    """What one layer hands to the next: the output of GEMMs whose columns are also what GEMMs start from.

    Args:
        run: The measured run.
        layers: Its layers.

    Raises:
        LayoutError: No GEMM of the layers has known shapes.
    """
    gemms = run.kernels[layers.rows_of_one].filter((pl.col("family") == "gemm") & (pl.col("batch") == 1))
    both = widths(gemms)
    if both.is_empty():
        raise LayoutError(
            "what stages would send each other isn't known: the layers have no GEMMs with shapes.",
            "Record with record_shapes=True.",
        )
    return float(both["bytes"][0])


def send_times_us(size_bytes: float, layout: Layout, cluster: Cluster) -> tuple[Floats, ...]:
    """How long a send holds up a stage, from each chunk to the next: likely, least and most.

    Args:
        size_bytes: Of what is sent.
        layout: On the cluster.
        cluster: What joins the stages.
    """
    chunks = np.arange(layout.pp * layout.chunks)
    node = chunks % layout.pp * layout.stride("pp") // cluster.gpus_per_node
    sends = pl.DataFrame({"nodes": 1 + (node[1:] != node[:-1])})
    call = {"collective": "send_recv", "bytes": size_bytes, "ranks": 2, "dtype": "bf16"}
    times = predict(sends.with_columns(pl.lit(value).alias(name) for name, value in call.items()), cluster)
    columns = ("time_us", "low_us", "high_us")
    return tuple(times[column].to_numpy() + hand_over for column, hand_over in zip(columns, HAND_OVER_US, strict=True))
