"""Find where the hooks of DistributedDataParallel (DDP) run in a trace without data parallelism, and their host cost.

The hooks run on the thread that accumulates gradients, right after each gradient: they copy it into its bucket and
launch the all-reduce of a full bucket. After the pass they copy the buckets back.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.nodes import NONE
from tracekit.messages import layouts
from tracekit.parallelism.compressions import Compression
from tracekit.parallelism.layout import LayoutError
from tracekit.program import Program
from tracekit.workload.module_paths import BACKWARD

DEFAULT_COPY_US = 10.0
"""Host time to launch the copy of a gradient, where the trace has no op that shows it."""

COLLECTIVE_LAUNCH_US, COLLECTIVE_LAUNCH_COPIES = 70.0, 3
"""Host time to launch a collective: a constant, plus the time of this many copies.

All-reduces of 13 recorded jobs on A100, MI300X, RTX 4090 and others took 42 to 278 us in the median, within a factor of
1.45 of this formula (standard deviation); they took 3 to 13 times as long as a copy.
"""


COMPRESS_OP, DECOMPRESS_OP = (
    f"torch.distributed.algorithms.ddp_comm_hooks::{name}" for name in ("compress", "decompress")
)


def estimate_copy_launch_ns(program: Program) -> int:
    """Estimate the host time to launch a copy: the median of the trace's ops with one elementwise kernel."""
    alone = (pl.col("family") == "elementwise") & (pl.len().over("op_row") == 1)
    rows = program.kernels.filter(pl.col("op_row").is_not_null()).filter(alone)["op_row"]
    median = program.trace.ops["dur_ns"].gather(rows).median()
    return round(median) if isinstance(median, float) else round(1e3 * DEFAULT_COPY_US)


def estimate_collective_launch_ns(copy_ns: int) -> int:
    """Estimate the host time to launch a collective from that of a copy."""
    return round(1e3 * COLLECTIVE_LAUNCH_US) + COLLECTIVE_LAUNCH_COPIES * copy_ns


@dataclass(frozen=True)
class DdpHookSites:
    """The places in a program for DDP's copies and all-reduces.

    Arrays are indexed by gradient, in order of time, or by the rows of ``buckets``.

    Attributes:
        program: The program.
        gradients: The gradients, as ``find_exchanged_gradients`` returns them.
        compression: How buckets of fp32 are compressed; None where they aren't.
        ranks: Ranks that exchange them.
    """

    program: Program
    gradients: pl.DataFrame
    compression: Compression | None = None
    ranks: int = 1

    @cached_property
    def copy_ns(self) -> int:
        """Host time to launch a copy."""
        return estimate_copy_launch_ns(self.program)

    @cached_property
    def done_ns(self) -> Ints:
        """Time at which each gradient was accumulated, from the start of the trace."""
        done: Ints = self.gradients["done_ns"].to_numpy() - self.program.graph.nodes.origin_ns
        return done

    @cached_property
    def first_gradient(self) -> Ints:
        """First gradient of each optimizer step's exchange."""
        return np.flatnonzero(np.diff(self.gradients["exchange"].to_numpy(), prepend=-1))

    @cached_property
    def last_gradient(self) -> Ints:
        """Last gradient of each optimizer step's exchange."""
        return np.append(self.first_gradient[1:], self.gradients.height) - 1

    @cached_property
    def buckets(self) -> pl.DataFrame:
        """One row per all-reduce: ``closed``, its last gradient; the type, whether it is ``apart``, and its size.

        ``packed`` is whether it is compressed, ``sent`` the bytes that it then has.

        DDP launches the all-reduces in the order of the buckets: one that is full waits for those before it. Where
        their last gradients are 4, 3 and 7, the buckets close at 4, 4 and 7.
        """
        rows = self.gradients.with_row_index("row")
        return (
            rows.group_by("exchange", "bucket")
            .agg(
                pl.first("step", "dtype", "apart"),
                pl.col("bytes", "numel").sum(),
                sent=(self.compression.size_gradients() if self.compression else pl.col("bytes")).sum(),
                closed=pl.col("row").max().cast(pl.Int64),
            )
            .sort("exchange", "bucket")
            .with_columns(
                closed=pl.col("closed").cum_max().over("exchange"),
                packed=(pl.col("dtype") == "fp32") & pl.lit(self.compression is not None),
            )
        )

    @cached_property
    def packed(self) -> Ints:
        """Rows of ``buckets`` that are compressed."""
        return np.flatnonzero(self.buckets["packed"].to_numpy())

    @cached_property
    def reduce_host_ns(self) -> Ints:
        """Host time to launch the all-reduces that each gradient's hook launches, with their compression."""
        launches = self.compression.count_launches(self.ranks) if self.compression else 0
        casts = launches * self.buckets["packed"].to_numpy().astype(np.int64)
        found = np.zeros(self.gradients.height, dtype=np.int64)
        cost_ns = estimate_collective_launch_ns(self.copy_ns) + self.copy_ns * casts
        np.add.at(found, self.buckets["closed"].to_numpy(), cost_ns)
        return found

    @cached_property
    def copy_back_order(self) -> Ints:
        """Gradients in the order in which they are copied back."""
        rows = self.gradients.with_row_index("row")
        order: Ints = rows.sort("exchange", "bucket", "row")["row"].cast(pl.Int64).to_numpy()
        return order

    @cached_property
    def copy_back_bucket(self) -> Ints:
        """Row of ``buckets`` for each of ``copy_back_order``."""
        rows = self.buckets.select("exchange", "bucket", at=pl.int_range(pl.len()))
        joined = self.gradients.join(rows, on=["exchange", "bucket"], how="left", maintain_order="left")
        numbers: Ints = joined["at"].to_numpy()[self.copy_back_order]
        return numbers

    @cached_property
    def compute_stream(self) -> Ints:
        """Activities of the compute stream of the backward pass, in order."""
        kernels, nodes = self.program.kernels, self.program.graph.nodes
        lanes = pl.DataFrame(
            {"lane": nodes.lane[nodes.n_host :], "dur_ns": kernels["dur_ns"], "phase": kernels["phase"]}
        )
        busiest = lanes.filter(phase=BACKWARD).group_by("lane").agg(pl.col("dur_ns").sum()).sort("dur_ns", "lane")
        if busiest.is_empty():
            raise LayoutError(layouts.BACKWARD_WITHOUT_LAUNCHES())
        return nodes.sort_by_lane(nodes.activities[nodes.lane[nodes.n_host :] == busiest["lane"][-1]])

    @cached_property
    def stream_position(self) -> Ints:
        """Number of activities of ``compute_stream`` launched before each gradient was accumulated.

        Inserted activities, which have no duration, count as launched with the one before them.
        """
        nodes, stream = self.program.graph.nodes, self.compute_stream
        launcher = nodes.launcher[stream - nodes.n_host]
        at = np.where(launcher == NONE, nodes.start_ns[stream], nodes.start_ns[launcher])
        at[(launcher == NONE) & (nodes.start_ns[stream] == nodes.end_ns[stream])] = 0
        place: Ints = np.searchsorted(np.maximum.accumulate(at), self.done_ns, side="right")
        return place

    @cached_property
    def preceding_call(self) -> Ints:
        """Last host node before each gradient on its thread."""
        nodes = self.program.graph.nodes
        threads = (
            self.program.kernels.select("call").with_columns(launcher=nodes.launcher).filter(pl.col("launcher") != NONE)
        )
        of_call = self.program.trace.calls.select("pid", "tid")[threads["call"]]
        lanes = of_call.with_columns(lane=nodes.lane[threads["launcher"].to_numpy()]).unique(["pid", "tid"])
        lane = self.gradients.join(lanes, on=["pid", "tid"], how="left", maintain_order="left")["lane"].fill_null(NONE)
        ordered = nodes.sort_by_lane(np.arange(nodes.n_host))
        found = np.full(lane.len(), NONE)
        for thread in lane.unique():
            own = ordered[nodes.lane[ordered] == thread]
            mine = (lane == thread).to_numpy()
            # Of calls a, b, c at 10, 20, 30, two begin before a gradient at 25: [NONE, a, b, c][2] is b.
            before = np.searchsorted(nodes.start_ns[own], self.done_ns[mine], side="right")
            found[mine] = np.append(NONE, own)[before]
        if (found == NONE).any():
            raise LayoutError(layouts.GRADIENTS_WITHOUT_LAUNCHES())
        return found

    @cached_property
    def hook_host_ns(self) -> Ints:
        """Host time that copies and all-reduces add since ``preceding_call``, up to this gradient's."""
        cost = self.copy_ns + self.reduce_host_ns
        return (
            pl.DataFrame({"call": self.preceding_call, "cost": cost})
            .select(pl.col("cost").cum_sum().over("call"))["cost"]
            .to_numpy()
        )

    @cached_property
    def copy_back_host_ns(self) -> Ints:
        """Host time from the last gradient of each exchange to the launch of each of ``copy_back_order``."""
        each = self.last_gradient - self.first_gradient + 1
        number = np.arange(self.gradients.height) - np.repeat(self.first_gradient, each) + 1
        until: Ints = np.repeat(self.hook_host_ns[self.last_gradient], each) + number * self.copy_ns
        return until

    @property
    def copy_in_nodes(self) -> Ints:
        """Graph nodes of the copies into buckets, by gradient."""
        nodes: Ints = self.program.graph.nodes.start_ns.size + np.arange(self.gradients.height)
        return nodes

    @property
    def allreduce_nodes(self) -> Ints:
        """Graph nodes of the all-reduces, by row of ``buckets``."""
        nodes: Ints = self.copy_in_nodes[-1] + 1 + np.arange(self.buckets.height)
        return nodes

    @property
    def copy_back_nodes(self) -> Ints:
        """Graph nodes of the copies back, in the order of ``copy_back_order``."""
        nodes: Ints = self.allreduce_nodes[-1] + 1 + np.arange(self.gradients.height)
        return nodes

    @property
    def compress_nodes(self) -> Ints:
        """Graph nodes of the casts before the all-reduces, by ``packed``."""
        nodes: Ints = self.copy_back_nodes[-1] + 1 + np.arange(self.packed.size)
        return nodes

    @property
    def decompress_nodes(self) -> Ints:
        """Graph nodes of the casts back, by ``packed``."""
        return self.compress_nodes + self.packed.size
