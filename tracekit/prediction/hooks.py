"""Where in a run without data parallelism the exchange of gradients goes, and what it costs the CPU.

DistributedDataParallel's hooks run on the thread that accumulates gradients, right behind each: they copy it into its
bucket and launch the all-reduce of a full one. When the pass is over they copy the buckets back.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.nodes import NONE
from tracekit.prediction.layout import LayoutError
from tracekit.replay.run import Run
from tracekit.workload.phases import BACKWARD

COPY_US = 10.0
"""What the CPU needs to copy a gradient, where no op of the trace tells."""

LAUNCH_US, LAUNCH_COPIES = 70.0, 3
"""What it needs to launch a collective: so long, and as long as for so many copies. All-reduces of 13 recorded jobs on
A100, MI300X, RTX 4090 and others took 42 to 278 us in the median, within a factor of 1.45 of it (standard deviation);
over a copy alone they took 3 to 13 times as long."""


def copy_cost_ns(run: Run) -> int:
    """What the CPU needs to launch a copy: what the trace's ops of one elementwise kernel take, the median.

    Args:
        run: The measured run.
    """
    alone = (pl.col("family") == "elementwise") & (pl.len().over("op_row") == 1)
    rows = run.kernels.filter(pl.col("op_row").is_not_null()).filter(alone)["op_row"]
    median = run.trace.ops["dur_ns"].gather(rows).median()
    return round(median) if isinstance(median, float) else round(1e3 * COPY_US)


def launch_cost_ns(copy_ns: int) -> int:
    """What the CPU needs to launch a collective, where a copy takes it ``copy_ns``."""
    return round(1e3 * LAUNCH_US) + LAUNCH_COPIES * copy_ns


@dataclass(frozen=True)
class Places:
    """Where in a run the exchange goes; arrays by gradient, in order of time, or by ``buckets`` row."""

    run: Run
    table: pl.DataFrame

    @cached_property
    def copy_ns(self) -> int:
        """What the CPU needs to launch a copy."""
        return copy_cost_ns(self.run)

    @cached_property
    def done_ns(self) -> Ints:
        """When each gradient was accumulated, from the start of the trace."""
        done: Ints = self.table["done_ns"].to_numpy() - self.run.graph.nodes.origin_ns
        return done

    @cached_property
    def first(self) -> Ints:
        """The first gradient of each exchange."""
        return np.flatnonzero(np.diff(self.table["exchange"].to_numpy(), prepend=-1))

    @cached_property
    def last(self) -> Ints:
        """The last gradient of each exchange."""
        return np.append(self.first[1:], self.table.height) - 1

    @cached_property
    def buckets(self) -> pl.DataFrame:
        """A row for each all-reduce: ``closed``, its last gradient, ``first`` of its exchange, and what it moves."""
        rows = self.table.with_row_index("row")
        return (
            rows.group_by("exchange", "bucket")
            .agg(
                pl.first("step", "dtype", "apart"),
                pl.col("bytes", "numel").sum(),
                closed=pl.col("row").max().cast(pl.Int64),
            )
            .sort("exchange", "bucket")
            .with_columns(closed=pl.col("closed").cum_max().over("exchange"))
        )

    @cached_property
    def back(self) -> Ints:
        """The gradients in the order in which they are copied back."""
        rows = self.table.with_row_index("row")
        order: Ints = rows.sort("exchange", "bucket", "row")["row"].cast(pl.Int64).to_numpy()
        return order

    @cached_property
    def bucket_of_back(self) -> Ints:
        """The ``buckets`` row of each of ``back``."""
        rows = self.buckets.select("exchange", "bucket", at=pl.int_range(pl.len()))
        joined = self.table.join(rows, on=["exchange", "bucket"], how="left", maintain_order="left")
        numbers: Ints = joined["at"].to_numpy()[self.back]
        return numbers

    @cached_property
    def stream(self) -> Ints:
        """The activities of the stream that computes the backward pass, in order."""
        kernels, nodes = self.run.kernels, self.run.graph.nodes
        lanes = pl.DataFrame({"lane": nodes.lane[nodes.cpu :], "dur_ns": kernels["dur_ns"], "phase": kernels["phase"]})
        busiest = lanes.filter(phase=BACKWARD).group_by("lane").agg(pl.col("dur_ns").sum()).sort("dur_ns", "lane")
        if busiest.is_empty():
            raise LayoutError("the trace's backward pass launches nothing on the GPU.")
        return nodes.in_order(nodes.activities[nodes.lane[nodes.cpu :] == busiest["lane"][-1]])

    @cached_property
    def place(self) -> Ints:
        """How many activities of ``stream`` were launched before each gradient was accumulated."""
        nodes = self.run.graph.nodes
        launcher = nodes.launcher[self.stream - nodes.cpu]
        at = np.where(launcher == NONE, nodes.start_ns[self.stream], nodes.start_ns[launcher])
        place: Ints = np.searchsorted(np.maximum.accumulate(at), self.done_ns, side="right")
        return place

    @cached_property
    def call(self) -> Ints:
        """The CPU node that came last before each gradient on its thread."""
        nodes = self.run.graph.nodes
        threads = (
            self.run.kernels.select("call").with_columns(launcher=nodes.launcher).filter(pl.col("launcher") != NONE)
        )
        of_call = self.run.trace.calls.select("pid", "tid")[threads["call"]]
        lanes = of_call.with_columns(lane=nodes.lane[threads["launcher"].to_numpy()]).unique(["pid", "tid"])
        lane = self.table.join(lanes, on=["pid", "tid"], how="left", maintain_order="left")["lane"].fill_null(NONE)
        ordered = nodes.in_order(np.arange(nodes.cpu))
        found = np.full(lane.len(), NONE)
        for thread in lane.unique():
            own = ordered[nodes.lane[ordered] == thread]
            mine = (lane == thread).to_numpy()
            before = np.searchsorted(nodes.start_ns[own], self.done_ns[mine], side="right")
            found[mine] = np.append(NONE, own)[before]
        if (found == NONE).any():
            raise LayoutError("gradients are accumulated on a thread that has launched nothing on the GPU.")
        return found

    @cached_property
    def host_ns(self) -> Ints:
        """CPU time that copies and all-reduces of gradients add since ``call``, this gradient's included."""
        reduces = np.bincount(self.buckets["closed"].to_numpy(), minlength=self.table.height)
        cost = self.copy_ns + launch_cost_ns(self.copy_ns) * reduces
        return (
            pl.DataFrame({"call": self.call, "cost": cost})
            .select(pl.col("cost").cum_sum().over("call"))["cost"]
            .to_numpy()
        )

    @cached_property
    def back_ns(self) -> Ints:
        """CPU time from the last gradient of each exchange until each of ``back`` is launched."""
        each = self.last - self.first + 1
        number = np.arange(self.table.height) - np.repeat(self.first, each) + 1
        until: Ints = np.repeat(self.host_ns[self.last], each) + number * self.copy_ns
        return until

    @property
    def copied_in(self) -> Ints:
        """Nodes of the copies into buckets, by gradient."""
        nodes: Ints = self.run.graph.nodes.start_ns.size + np.arange(self.table.height)
        return nodes

    @property
    def reduced(self) -> Ints:
        """Nodes of the all-reduces, by ``buckets`` row."""
        nodes: Ints = self.copied_in[-1] + 1 + np.arange(self.buckets.height)
        return nodes

    @property
    def copied_back(self) -> Ints:
        """Nodes of the copies back, in the order of ``back``."""
        nodes: Ints = self.reduced[-1] + 1 + np.arange(self.table.height)
        return nodes
