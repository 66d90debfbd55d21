"""A job whose layers one rank has whole as tensor-parallel ranks would run it: with the all-reduces that it lacks.

As in Megatron-LM (Shoeybi et al., 2019): forward, each block's second product is followed by an all-reduce of what it
writes; backward, so are the gradients of a block's input. Nothing of the layer runs beside it. They take no time here,
as they are of one rank: ``scaling`` and ``collectives`` give them others.
"""

import numpy as np
import polars as pl

from tracekit.graph import Graph
from tracekit.graph.change import destinations, with_activities, with_edges
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.events import DEFAULT_LAG_NS
from tracekit.graph.nodes import NONE
from tracekit.graph.streams import DEFAULT_GAP_NS
from tracekit.prediction.added import (
    NEVER,
    PARTS,
    Added,
    Ints,
    beside,
    communicates,
    of_one_rank,
    slower_host,
    with_kernels,
)
from tracekit.prediction.blocks import EXPERTS, HEADS, ITEM_BYTES, in_blocks, item_bytes, of_layers, shared_out
from tracekit.prediction.hooks import copy_cost_ns, launch_cost_ns
from tracekit.prediction.layout import OVERLOOKED, LayoutError, trains
from tracekit.prediction.spread import HOST_SPREAD
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
        LayoutError: The trace doesn't tell the layers' blocks, or several ranks were read.
    """
    of_one_rank(run)
    check_layers(run.kernels)
    behind = _behind(run.kernels)
    product = run.graph.nodes.cpu + behind["row"].to_numpy().astype(np.int64)
    call = _launched_by(run.graph, product)
    cost_ns = launch_cost_ns(copy_cost_ns(run))
    op = NCCL_OP if trains(run) else ENGINES_OP
    grown = with_kernels(run, _rows(run, behind, op), _graph(run.graph, product, call, cost_ns))
    return Added(grown, _note(behind, cost_ns, op, in_graphs=bool((call == NONE).all())))


def _behind(kernels: pl.DataFrame) -> pl.DataFrame:
    """The products that an all-reduce follows, in order of launch, and how many ``elements`` that has.

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
        raise LayoutError(
            "the trace has no layers that ranks could share: no product follows attention or another one."
        )
    return found


def _check_tokens(order: pl.DataFrame) -> None:
    """Refuses experts that run one after the other, each on its tokens: they are added up before the all-reduce."""
    kind, m = pl.col("kind"), pl.col("m")
    attended = pl.when(kind.shift(1).over("device") == HEADS).then(m).forward_fill().over("device")
    forward = order.with_columns(attended=attended).filter((kind == "k") & (pl.col("phase") != BACKWARD))
    if (part := share(forward, "dur_ns", m != pl.col("attended"))) > OVERLOOKED:
        raise LayoutError(f"{part:.0f} % of the products that ranks would add up work on other tokens than attention.")


def _launched_by(graph: Graph, product: Ints) -> Ints:
    """The call that launches each product; ``NONE`` in CUDA graphs, and where what-if edits let it take no time."""
    nodes = graph.nodes
    call = nodes.launcher[product - nodes.cpu]
    launches = np.bincount(nodes.launcher[nodes.launcher != NONE], minlength=nodes.cpu)
    takes_time = np.zeros(nodes.start_ns.size, dtype=np.bool_)
    takes_time[destinations(graph)[(graph.kind == EdgeKind.RUN) & (graph.lag_ns > 0)] // 2] = True
    return np.where((call != NONE) & (launches[call] == 1) & takes_time[call], call, NONE)


def _graph(graph: Graph, product: Ints, call: Ints, cost_ns: int) -> Graph:
    """``graph`` with an all-reduce behind each of some products, for which what follows on the stream waits."""
    nodes = graph.nodes
    launched = call != NONE
    reduced = nodes.start_ns.size + np.arange(product.size)
    host = slower_host(graph, call[:0], call[launched], cost_ns)
    grown = with_activities(host, np.full(product.size, nodes.lane.max() + 1), nodes.end_ns[product])
    following = beside(graph)[0][product]
    awaited = following != NEVER
    edges = (
        (EdgeKind.PROGRAM, ends(call[launched]), starts(reduced[launched]), cost_ns),
        (EdgeKind.EVENT, ends(product), starts(reduced), DEFAULT_LAG_NS),
        (EdgeKind.EVENT, ends(reduced[awaited]), starts(following[awaited]), DEFAULT_LAG_NS),
        (EdgeKind.STREAM, ends(reduced[:-1]), starts(reduced[1:]), DEFAULT_GAP_NS),
    )
    for kind, src, dst, lag_ns in edges:
        grown = with_edges(grown, Edges(kind, src, dst, np.full(src.size, lag_ns)))
    return grown


def _rows(run: Run, behind: pl.DataFrame, op: str) -> pl.DataFrame:
    """Rows of the kernel table for the all-reduces."""
    dtype = pl.col("dtype")
    whole = dtype.is_in(list(ITEM_BYTES))
    return behind.select(
        "step", "device", "phase", ts_ns=pl.col("ts_ns") + pl.col("dur_ns"), bytes=pl.col("elements") * item_bytes(),
        dtype=pl.when(whole).then(pl.lit("fp32")).when(dtype=="fp16").then(dtype).otherwise(pl.lit("bf16")),
        name=pl.lit("all-reduce"), op=pl.lit(op), collective=pl.lit("all_reduce"),
        **communicates(run, PARTS),
    )  # fmt: skip


def _note(behind: pl.DataFrame, cost_ns: int, op: str, *, in_graphs: bool) -> str:
    steps = max(behind["step"].drop_nulls().n_unique(), 1)
    size = behind.select((pl.col("elements") * item_bytes()).sum()).item() / steps / 2**20
    runs = "NCCL's kernels" if op == NCCL_OP else "the faster of serving engines' own kernels and NCCL's"
    host = (
        "They run in CUDA graphs, or cost the CPU nothing, as the products that they follow"
        if in_graphs
        else f"Each costs the CPU {cost_ns / 1e3:.0f} us; the interval allows for a host "
        f"{100 * (HOST_SPREAD - 1):.0f} % slower or faster"
    )
    return (
        f"the trace's layers aren't shared out: Megatron-LM's all-reduces were put in, {behind.height / steps:,.0f} of "
        f"{size:,.1f} MiB a step, one behind each block forward and backward, as {runs} run them. {host}. Embeddings "
        "and the loss stay as they are"
    )
