"""Shard the optimizer over data-parallel ranks: ZeRO 1 and 2, Megatron's distributed optimizer.

Each rank updates its part of the parameters (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models, SC 2020). Gradients are reduce-scattered where DDP would all-reduce them, and after the update the
parameters are all-gathered::

    compute stream | backward | in g0 | bwd | in g1 |        | optimizer, its part |
    new streams                       | reduce-scatter 0, 1 |                      | all-gather |

ZeRO 3 is FSDP.
"""

from collections.abc import Callable

import polars as pl

from tracekit.arrays import Ints
from tracekit.messages import layouts as told
from tracekit.parallelism.ddp import insert_expert_gradient_allreduces, insert_gradient_allreduces
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.inserted import Insertion, append_kernels, build_collective_columns, insert_in_stream
from tracekit.parallelism.layout import LayoutError
from tracekit.program import Program
from tracekit.workload.module_paths import OPTIMIZER

SCATTER_OP, GATHER_OP = "c10d::_reduce_scatter_base_", "c10d::_allgather_base_"


def insert_optimizer_exchange(program: Program) -> Insertion:
    """Insert the reduce-scatters of gradients, and the all-gather of parameters after the update.

    Raises:
        LayoutError: The gradients are unknown, or there is no optimizer.
    """
    return _exchange(program, insert_gradient_allreduces)


def insert_expert_optimizer_exchange(program: Program) -> Insertion:
    """Insert the exchanges where replicas split experts, whose optimizer those of the same experts share.

    Raises:
        LayoutError: The gradients or the experts are unknown, or there is no optimizer.
    """
    return _exchange(program, insert_expert_gradient_allreduces)


def _exchange(program: Program, reduce: Callable[[Program], Insertion]) -> Insertion:
    last = find_last_updates(program)
    if not last.size:
        raise LayoutError(told.ZERO_WITHOUT_OPTIMIZER())
    reduced = reduce(program)
    is_new = pl.int_range(pl.len()) >= program.kernels.height
    exchanged = is_new & (pl.col("collective") == "all_reduce")
    names = {"collective": "reduce_scatter", "op": SCATTER_OP, "name": "reduce-scatter"}
    kernels = reduced.program.kernels.with_columns(
        pl.when(exchanged).then(pl.lit(value)).otherwise(name).alias(name) for name, value in names.items()
    )
    scattered = reduced.program.replace_tables(kernels=kernels)
    cost_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(program))
    buckets = reduced.program.kernels.filter(exchanged)
    groups = buckets.group_by("step", "group_description", maintain_order=True).agg(
        pl.col("bytes").sum(), pl.col("dtype").mode().sort().first()
    )
    updates = kernels.select("step", "device", "ts_ns", at=pl.int_range(pl.len()))[last]
    joined = updates.join(groups, on="step", how="left", maintain_order="left")
    gathers = joined.drop("at").with_columns(
        **build_collective_columns(scattered, pl.col("group_description")),
        name=pl.lit("all-gather"),
        op=pl.lit(GATHER_OP),
        collective=pl.lit("all_gather"),
        phase=pl.lit(OPTIMIZER),
    )
    graph = insert_in_stream(scattered.graph, scattered.graph.nodes.n_host + joined["at"].to_numpy(), cost_ns)
    return Insertion(append_kernels(scattered, gathers, graph), told.ZERO_INSERTED(whole=reduced.note))


def find_last_updates(program: Program) -> Ints:
    """Find the rows of the last kernel of each step's optimizer; none where there is none."""
    rows = program.kernels.with_row_index("row").filter((pl.col("phase") == OPTIMIZER) & program.is_in_chosen_steps)
    last: Ints = (
        rows.sort("ts_ns")
        .group_by("step", maintain_order=True)
        .agg(pl.col("row").last().cast(pl.Int64))["row"]
        .to_numpy()
    )
    return last
