"""A job whose experts one rank has whole as ranks that share them would run it: with the all-to-alls that it lacks.

As Megatron-LM's all-to-all dispatcher, DeepSpeed and torchtitan do it: before a layer's experts each rank sends every
token to the ranks of the experts that it visits, once for each, and behind them gets it back; backward the gradients
go the same ways. Nothing runs beside it. They take no time here, as they are of one rank: ``scaling`` and
``collectives`` give them others.
"""

import numpy as np
import polars as pl

from tracekit.prediction.added import NEVER, Added, beside, communicates, with_kernels
from tracekit.prediction.blocks import item_bytes, message_dtype
from tracekit.prediction.experts import Experts, recognise_experts
from tracekit.prediction.hooks import copy_cost_ns, launch_cost_ns
from tracekit.prediction.in_line import in_line, of_host
from tracekit.prediction.layout import SHARERS, LayoutError
from tracekit.replay.run import Run


def with_dispatch(run: Run) -> Added:
    """A run whose experts are whole with the all-to-alls of ranks that share them.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The trace doesn't tell the experts.
    """
    experts = recognise_experts(run)
    sent = _sent(run, experts)
    cost_ns = launch_cost_ns(copy_cost_ns(run))
    behind = sent["behind"].to_numpy().astype(np.int64)
    grown = with_kernels(run, _rows(run, sent, experts), in_line(run.graph, behind, cost_ns))
    return Added(grown, _note(sent, experts, of_host(run.graph, behind, cost_ns)))


def _sent(run: Run, experts: Experts) -> pl.DataFrame:
    """A row for each all-to-all in order of launch, with what it moves, and ``behind`` which activity it follows."""
    cpu = run.graph.nodes.cpu
    ends = experts.gemms.group_by("layer", maintain_order=True).agg(
        pl.first("step", "device", "phase", "dtype", "pairs"),
        ts_ns=pl.concat_list(pl.col("ts_ns").first(), (pl.col("ts_ns") + pl.col("dur_ns")).last()),
        at=pl.concat_list(pl.col("row").first(), pl.col("row").last()).cast(pl.List(pl.Int64)),
    )
    table = ends.with_columns(dispatches=pl.lit([True, False])).explode("ts_ns", "at", "dispatches")
    node = cpu + table["at"].to_numpy()
    dispatches = table["dispatches"].to_numpy()
    behind = np.where(dispatches, beside(run.graph)[1][node], node)
    if (behind == NEVER).any():
        raise LayoutError("the trace begins with MoE experts: where their tokens come from isn't in it.")
    return table.with_columns(behind=pl.Series(behind))


def _rows(run: Run, sent: pl.DataFrame, experts: Experts) -> pl.DataFrame:
    """Rows of the kernel table for the all-to-alls."""
    return sent.select(
        "step", "device", "phase", "ts_ns", bytes=pl.col("pairs") * experts.hidden * item_bytes(),
        dtype=message_dtype(), name=pl.lit("all-to-all"), op=pl.lit("c10d::alltoall_base_"),
        collective=pl.lit("all_to_all"), **communicates(run, SHARERS),
    )  # fmt: skip


def _note(sent: pl.DataFrame, experts: Experts, host: str) -> str:
    steps = max(sent["step"].drop_nulls().n_unique(), 1)
    size = sent.select((pl.col("pairs") * experts.hidden * item_bytes()).sum()).item() / steps / 2**20
    return (
        f"the trace has no expert parallelism, and {experts.number} experts a layer: Megatron-LM's all-to-alls were "
        f"inserted, {sent.height / steps:,.0f} a step with {size:,.1f} MiB in all, one before and one after each MoE "
        "layer, forward and backward, with a token for each expert that it is routed to. Each rank has its part of the "
        "experts, which get tokens from every rank; load imbalance between experts isn't in the numbers, and the "
        f"interval goes up to experts that take as long as before, though fewer weights are read. {host}"
    )
