"""A job whose layers one rank has whole as tensor-parallel ranks would run it: with the all-reduces that it lacks.

As in Megatron-LM (Shoeybi et al., 2019): forward, each block's second GEMM is followed by an all-reduce of what it
writes; backward, so are the gradients of a block's input. Nothing of the layer runs beside it. They take no time here,
as they are of one rank: ``scaling`` and ``collectives`` give them others.
"""

import numpy as np
import polars as pl

from tracekit.prediction.added import Added, communicates, with_kernels
from tracekit.prediction.blocks import EXPERTS, HEADS, in_blocks, item_bytes, message_dtype, of_layers, shared_out
from tracekit.prediction.hooks import copy_cost_ns, launch_cost_ns
from tracekit.prediction.in_line import in_line, of_host
from tracekit.prediction.layout import OVERLOOKED, PARTS, LayoutError, trains
from tracekit.prediction.tensor import check_layers
from tracekit.replay.run import Run
from tracekit.workload.phases import BACKWARD
from tracekit.workload.shares import share

NCCL_OP, ENGINES_OP = "c10d::allreduce_", "_C_custom_ar::all_reduce"
"""What runs all-reduces of training, and of inference: ``messages`` tells by it which model they take."""


def with_reductions(run: Run) -> Added:
    """A run whose layers are whole with the all-reduces of ranks that share them.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The trace doesn't tell the layers' blocks.
    """
    check_layers(run.kernels)
    behind = _behind(run.kernels)
    gemm = run.graph.nodes.cpu + behind["row"].to_numpy().astype(np.int64)
    cost_ns = launch_cost_ns(copy_cost_ns(run))
    op = NCCL_OP if trains(run) else ENGINES_OP
    grown = with_kernels(run, _rows(run, behind, op), in_line(run.graph, gemm, cost_ns))
    return Added(grown, _note(behind, op, of_host(run.graph, gemm, cost_ns)))


def _behind(kernels: pl.DataFrame) -> pl.DataFrame:
    """The GEMMs that an all-reduce follows, in order of launch, and how many ``elements`` that has.

    Backward, these are the last ones of each block's input.
    """
    activations = of_layers(kernels)
    order = in_blocks(kernels.with_columns(shared_out(kernels, activations)["side"]))
    kind, plain = pl.col("kind"), pl.when(pl.col("kind").is_in(["n", "k"]))
    same_op = (pl.col("op_row").shift(-1).over("device") == pl.col("op_row")).fill_null(False)
    apart = (kind == "k") & (pl.col("phase") != BACKWARD) & ~same_op
    last = kind.shift(-1).over("device").ne_missing(kind) | apart
    tokens = plain.then("m").forward_fill().over("device")
    found = order.with_columns(elements=tokens * activations.hidden).filter(kind.is_in(["k", EXPERTS]) & last)
    _check_tokens(order)
    if found.is_empty():
        raise LayoutError("the trace has no layers for tensor parallelism: no GEMM follows attention or another GEMM.")
    return found


def _check_tokens(order: pl.DataFrame) -> None:
    """Refuses experts that run one after the other, each on its tokens: they are added up before the all-reduce."""
    kind, m = pl.col("kind"), pl.col("m")
    attended = pl.when(kind.shift(1).over("device") == HEADS).then(m).forward_fill().over("device")
    forward = order.with_columns(attended=attended).filter((kind == "k") & (pl.col("phase") != BACKWARD))
    if (part := share(forward, "dur_ns", m != pl.col("attended"))) > OVERLOOKED:
        raise LayoutError(
            f"{part:.0f} % of the GEMMs whose outputs ranks would all-reduce work on other tokens than attention."
        )


def _rows(run: Run, behind: pl.DataFrame, op: str) -> pl.DataFrame:
    """Rows of the kernel table for the all-reduces."""
    return behind.select(
        "step", "device", "phase", ts_ns=pl.col("ts_ns") + pl.col("dur_ns"), bytes=pl.col("elements") * item_bytes(),
        dtype=message_dtype(), name=pl.lit("all-reduce"), op=pl.lit(op), collective=pl.lit("all_reduce"),
        **communicates(run, PARTS),
    )  # fmt: skip


def _note(behind: pl.DataFrame, op: str, host: str) -> str:
    steps = max(behind["step"].drop_nulls().n_unique(), 1)
    size = behind.select((pl.col("elements") * item_bytes()).sum()).item() / steps / 2**20
    passes = " forward and backward" if BACKWARD in behind["phase"].to_list() else ""
    runs = "NCCL's kernels" if op == NCCL_OP else "the faster of serving engines' own kernels and NCCL's"
    return (
        f"the trace has no tensor parallelism: Megatron-LM's all-reduces were inserted, {behind.height / steps:,.0f} a "
        f"step with {size:,.1f} MiB in all, one after each block{passes}, as {runs} run them. {host}. "
        "Embeddings and the loss stay as they are"
    )
