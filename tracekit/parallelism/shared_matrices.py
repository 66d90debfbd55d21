"""Share an optimizer that multiplies whole matrices, such as Muon, over the ranks that share a model's parameters.

The Newton-Schulz products need a whole matrix. Ranks share them so::

    ZeRO              each rank owns whole matrices, and updates these alone: no exchange but ZeRO's own
                      (Megatron-LM, LayerWiseDistributedOptimizer)
    FSDP              an all-to-all brings the shards of each matrix to one rank, another one its update back
                      (Microsoft's Dion, muon.py)
    tensor parallel   an all-gather brings each matrix together, and all ranks multiply it
                      (Megatron-LM, --muon-tp-mode duplicated)

Each rank takes as much of the matrices' work as any other. None of it was compared with measurements.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Bools
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations
from tracekit.messages import layouts as told
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.inserted import (
    Insertion,
    append_kernels,
    build_collective_columns,
    insert_in_stream,
    name_exchanges,
)
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.process_groups import DP_GROUP, TP_GROUP
from tracekit.program import Program
from tracekit.workload.module_paths import OPTIMIZER

MOMENTUM_OP = "aten::lerp_"
"""Updates a matrix's momentum, whose first kernel it is."""
MOMENTUM_ACCESSES = 3
"""It reads the momentum and the gradient, and writes the momentum."""


def updates_matrices() -> pl.Expr:
    """Select kernels of an optimizer's update of whole matrices; lists of other parameters are of another family."""
    return (pl.col("phase") == OPTIMIZER) & ~pl.col("family").is_in(["optimizer", "collective"])


def multiplies_matrices(kernels: pl.DataFrame) -> bool:
    """Return whether the optimizer multiplies whole matrices."""
    return bool(kernels.select((updates_matrices() & (pl.col("family") == "gemm")).any()).item())


@dataclass(frozen=True, slots=True)
class ShareMatrices:
    """Inserts what ranks exchange to update whole matrices, and leaves each rank its share of the work.

    Attributes:
        old: The trace's layout.
        new: Another one.
    """

    old: Layout
    new: Layout

    def __call__(self, program: Program) -> Insertion:
        """Change a program whose optimizer multiplies matrices.

        The work's mean over all ranks is kept by a factor on each kernel and on the host's time before its launch.
        """
        mine = program.kernels.select(updates_matrices().fill_null(value=False)).to_series().to_numpy()
        part = self.old.optimizer_ranks / self.new.optimizer_ranks
        shared = _scale(program, mine, part)
        sites = self._list_exchanges(shared)
        note = told.MATRICES_SHARED(ranks=round(1 / part), exchanges=sites.height)
        if sites.is_empty():
            return Insertion(shared, note)
        cost_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(program))
        behind = shared.graph.nodes.n_host + sites["row"].to_numpy().astype(np.int64)
        called = build_collective_columns(shared, pl.col("group"))
        rows = sites.with_columns(**called, phase=pl.lit(OPTIMIZER), **name_exchanges()).drop("row", "group")
        return Insertion(append_kernels(shared, rows, insert_in_stream(shared.graph, behind, cost_ns)), note)

    def _list_exchanges(self, program: Program) -> pl.DataFrame:
        """List the exchanges in order, each behind the kernel ``row``."""
        of_matrices = program.kernels.with_row_index("row").filter(updates_matrices() & program.is_in_chosen_steps)
        is_momentum = pl.col("op") == MOMENTUM_OP
        steps = of_matrices.sort("ts_ns").group_by("step", maintain_order=True).agg(
            pl.col("device").first(), pl.col("dtype").filter(is_momentum).first(),
            size=(pl.col("bytes") * is_momentum).sum() // MOMENTUM_ACCESSES,
            first=pl.struct("row", "ts_ns").first(), last=pl.struct("row", "ts_ns").last(),
        )  # fmt: skip
        new, found = self.new, []
        if self.old.tp == 1 < new.tp:
            # What tensor-parallel ranks send grows with the tokens of a rank, which these matrices don't.
            tokens = new.batch / self.old.batch * self.old.cp / new.cp
            found.append(("first", "all_gather", TP_GROUP, 1 / tokens))
        if new.fsdp_ranks > self.old.fsdp_ranks:
            found += [(at, "all_to_all", DP_GROUP, 1 / new.fsdp_ranks) for at in ("first", "last")]
        listed = [
            steps.select(
                "step", "device", "dtype", bytes=(pl.col("size") * factor).ceil().cast(pl.Int64),
                collective=pl.lit(kind), group=pl.lit(group), row=pl.col(at).struct["row"],
                ts_ns=pl.col(at).struct["ts_ns"],
            )
            for at, kind, group, factor in found
        ]  # fmt: skip
        return pl.concat(listed).sort("step", "ts_ns", maintain_order=True) if listed else steps.head(0)


def _scale(program: Program, rows: Bools, part: float) -> Program:
    """Scale the time of some kernels, and the host's before each launch."""
    graph = program.graph
    calls = np.zeros(graph.nodes.n_host, dtype=np.bool_)
    launchers = graph.nodes.launcher[rows]
    calls[launchers[launchers >= 0]] = True
    node = compute_edge_destinations(graph) // 2
    before = (graph.kind == EdgeKind.PROGRAM) & (node < calls.size)
    before[before] = calls[node[before]]
    lag_ns = np.where(before, np.rint(graph.lag_ns * part).astype(np.int64), graph.lag_ns)
    factor = program.kernel_factor * np.where(rows, part, 1.0)
    return replace(program, graph=replace(graph, lag_ns=lag_ns), kernel_factor=factor)
