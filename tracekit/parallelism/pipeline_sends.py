"""Predict the sends between pipeline stages, and the time that they take."""

import numpy as np
import polars as pl

from tracekit.arrays import Floats
from tracekit.comm import Cluster, predict
from tracekit.messages import layouts
from tracekit.parallelism.layers import RepeatedLayers
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.transformer_blocks import find_hidden_sizes
from tracekit.program import Program

SEND_LATENCY_US = (300.0, 0.0, 600.0)
"""Cost of a send beyond its transfer, for launches and the wait for the other stage: likely, least and most.

Likely: sends of 10 to 28 MB took 0.38 to 0.76 ms between A100s, of which the transfer is 0.08 to 0.16 ms inside a node
(Qi et al., Zero Bubble Pipeline Parallelism, 2023, table 6), and interleaved schedules, which send more often, lost as
much with each send (table 4). Most is twice that. Least is zero, where a framework overlaps sends with computing.
"""


def infer_send_bytes(program: Program, layers: RepeatedLayers) -> float:
    """Infer the bytes that one layer passes to the next.

    It is the output of GEMMs whose number of columns is also the input width of GEMMs.

    Args:
        program: The program.
        layers: Its layers.

    Raises:
        LayoutError: No GEMM of the layers has known shapes.
    """
    gemms = program.kernels[layers.first_pass_rows].filter((pl.col("family") == "gemm") & (pl.col("batch") == 1))
    both = find_hidden_sizes(gemms)
    if both.is_empty():
        raise LayoutError(layouts.STAGE_MESSAGES_UNKNOWN())
    return float(both["bytes"][0])


def predict_send_times_us(size_bytes: float, layout: Layout, cluster: Cluster) -> tuple[Floats, ...]:
    """Predict how long a send from each chunk to the next blocks a stage: likely, least and most.

    Args:
        size_bytes: Size of the send.
        layout: Layout on the cluster.
        cluster: The cluster that connects the stages.
    """
    chunks = np.arange(layout.pp * layout.chunks)
    node = chunks % layout.pp * layout.get_group_stride("pp") // cluster.gpus_per_node
    sends = pl.DataFrame({"nodes": 1 + (node[1:] != node[:-1])})
    call = {"collective": "send_recv", "bytes": size_bytes, "ranks": 2, "dtype": "bf16"}
    times = predict(sends.with_columns(pl.lit(value).alias(name) for name, value in call.items()), cluster)
    columns = ("time_us", "low_us", "high_us")
    return tuple(
        times[column].to_numpy() + hand_over for column, hand_over in zip(columns, SEND_LATENCY_US, strict=True)
    )
