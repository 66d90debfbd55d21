"""Average the parameters of data-parallel replicas every few steps, in place of their gradients in each (local SGD).

Each replica updates its own parameters (Stich, Local SGD Converges Fast and Communicates Little, ICLR 2019); after
``every`` steps all replicas take the mean. PyTorch's PeriodicModelAverager flattens the parameters, divides and
all-reduces them behind the update, and takes views of the sum::

    compute stream | backward | optimizer |                      | next step
    new streams                           | flatten | all-reduce |

The one step that a program has stands for the mean of ``every`` steps: of a flattening and an all-reduce that nothing
runs beside, it carries 1/``every`` of the time. In post-local SGD (Lin et al., Don't Use Large Mini-Batches, Use Local
SGD, ICLR 2020) neighbouring replicas still reduce gradients in each step.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.messages import layouts as told
from tracekit.parallelism.ddp import insert_gradient_allreduces
from tracekit.parallelism.ddp_buckets import find_exchanged_gradients
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.inserted import (
    Insertion,
    append_kernels,
    build_collective_columns,
    find_stream_neighbours,
    insert_in_stream,
    name_exchanges,
)
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.process_groups import DP_GROUP, NEAR_GROUP
from tracekit.parallelism.zero import find_last_updates
from tracekit.program import Program
from tracekit.workload.module_paths import OPTIMIZER

FLATTEN_OP, FLATTEN_LAUNCHES = "torch.distributed.algorithms.model_averaging.utils::average_parameters", 2
"""Flattens the parameters and divides the copy: two launches, each of which reads and writes all of them."""


@dataclass(frozen=True, slots=True)
class AverageParameters:
    """Inserts the average of replicas' parameters.

    Attributes:
        every: Steps from one average to the next.
        within: Neighbouring replicas that reduce gradients in each step.
    """

    every: int
    within: int = 1

    def __call__(self, program: Program) -> Insertion:
        """Insert it behind each step's update.

        Raises:
            LayoutError: The gradients are unknown, or there is no optimizer.
        """
        last = find_last_updates(program)
        if not last.size:
            raise LayoutError(told.AVERAGES_WITHOUT_OPTIMIZER())
        found = find_exchanged_gradients(program)
        one = found.filter(pl.col("exchange") == pl.col("exchange").first())
        size = int(one["bytes"].sum())
        note = told.PARAMETERS_AVERAGED(parameter_bytes=size, every=self.every)
        grown = program
        if self.within > 1:
            reduced = _reduce_among_neighbours(program)
            grown = reduced.program
            note = told.PARAMETERS_AVERAGED_NEAR(whole=note, within=self.within, ddp=reduced.note)
        flat = grown.kernels.select("step", "device", "ts_ns")[last].with_columns(
            dtype=pl.lit(one["dtype"].mode().sort().first()), bytes=pl.lit(size), phase=pl.lit(OPTIMIZER)
        )
        return Insertion(self._insert(grown, last + grown.graph.nodes.n_host, flat, int(one["numel"].sum())), note)

    def _insert(self, program: Program, behind: np.ndarray, flat: pl.DataFrame, numel: int) -> Program:
        """Insert the flattening and the all-reduce of ``flat`` behind some nodes; the next kernel waits for both."""
        copy_ns = estimate_copy_launch_ns(program)
        cost_ns = FLATTEN_LAUNCHES * copy_ns + estimate_collective_launch_ns(copy_ns)
        following = find_stream_neighbours(program.graph)[0][behind]
        graph = insert_in_stream(program.graph, behind, round(cost_ns / self.every))
        added = program.graph.nodes.start_ns.size + np.arange(behind.size)
        graph = insert_in_stream(graph, added, 0, before=following)
        flattened = flat.with_columns(
            bytes=2 * FLATTEN_LAUNCHES * pl.col("bytes"), rows=pl.lit(1), cols=pl.lit(numel), flops=pl.lit(numel),
            name=pl.lit("flatten parameters"), op=pl.lit(FLATTEN_OP), family=pl.lit("elementwise"),
            stream=pl.lit(program.kernels["stream"].max(), pl.Int64) + 1,
        )  # fmt: skip
        averaged = flat.with_columns(**build_collective_columns(program, DP_GROUP), collective=pl.lit("all_reduce"))
        rows = pl.concat([flattened, averaged.with_columns(**name_exchanges())], how="diagonal_relaxed")
        grown = append_kernels(program, rows, graph)
        factor = np.append(program.kernel_factor, np.full(rows.height, 1 / self.every))
        return replace(grown, kernel_factor=factor)


def _reduce_among_neighbours(program: Program) -> Insertion:
    """Insert DDP's all-reduces among the replicas of one group."""
    reduced = insert_gradient_allreduces(program)
    is_new = pl.int_range(pl.len()) >= program.kernels.height
    exchanged = pl.when(is_new & (pl.col("collective") == "all_reduce"))
    names = ("process_group", "group_description")
    kernels = reduced.program.kernels.with_columns(
        exchanged.then(pl.lit(NEAR_GROUP)).otherwise(name).alias(name) for name in names
    )
    return replace(reduced, program=reduced.program.replace_tables(kernels=kernels))
