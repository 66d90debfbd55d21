"""The blocks of a transformer that tensor-parallel ranks share: which side of each GEMM is shared out, by its shape.

As Megatron-LM does it (Shoeybi et al., 2019): of the two GEMMs of a block the first gives each rank columns, the
second takes rows, and an all-reduce adds up what comes out, tokens x hidden. So a GEMM's side that is neither tokens
nor hidden is the one that is shared out; attention between two GEMMs shares out its heads. Of a mixture of experts
each rank takes its part, as many of them or each as narrow, which is the same work.
"""

from dataclasses import dataclass

import polars as pl

from tracekit.prediction.layout import OVERLOOKED, LayoutError
from tracekit.workload.phases import BACKWARD, FORWARD
from tracekit.workload.shares import share

SIDES = ("m", "n", "k")
OUTPUT_BYTES = {"fp32": 4, "tf32": 4}
"""Of an element of what a GEMM writes; 2 for all others."""

ACTIVATION_BYTES = 2
"""Of an element of the activations of GEMMs whose weights are narrower than these (quantised)."""

SQUARE, HEADS, EXPERTS = "square", "heads", "experts"
"""A GEMM of hidden x hidden, which its shape alone doesn't tell; attention; GEMMs of a mixture of experts."""

_OF_EXPERTS = r"(?i)moe|expert|grouped_mm|^_GroupedLinear|matmul_ogs"


@dataclass(frozen=True, slots=True)
class Activations:
    """What passes from block to block.

    Attributes:
        tokens: Its rows, which may differ from step to step.
        hidden: Its columns.
        whole: Whether one rank has the layers whole, so that a GEMM of hidden x hidden may be shared out too.
    """

    tokens: frozenset[int]
    hidden: int
    whole: bool


def of_experts() -> pl.Expr:
    """Which kernels of a table are GEMMs of several experts side by side."""
    named = [pl.col(name).str.contains(_OF_EXPERTS).fill_null(value=False) for name in ("op", "name")]
    return (pl.col("family") == "gemm") & (pl.col("batch") > 1) & pl.any_horizontal(named)


def activation_bytes(n: pl.Expr, k: pl.Expr) -> pl.Expr:
    """Bytes of the activations of GEMMs whose own ``bytes`` count their narrower weights too.

    Args:
        n: Columns of what they write.
        k: Columns of what they read.
    """
    return ACTIVATION_BYTES * pl.col("batch") * pl.col("m") * (n + k)


def stored_bytes() -> pl.Expr:
    """Bytes of the weights of such GEMMs."""
    return (pl.col("bytes") - activation_bytes(pl.col("n"), pl.col("k"))).clip(0)


def of_messages(kernels: pl.DataFrame, calls: pl.DataFrame) -> Activations:
    """The activations of layers that ranks share: outputs of GEMMs as large as the groups' messages.

    Args:
        kernels: The kernel table.
        calls: The collectives of tensor-parallel groups, as ``messages`` gives them.

    Raises:
        LayoutError: No GEMM's output is as large as a message.
    """
    item = pl.col("dtype").replace_strict({**OUTPUT_BYTES, "fp16": 2, "bf16": 2}, default=None, return_dtype=pl.Float64)
    sizes = calls.select(elements=(pl.col("bytes") / item).round().cast(pl.Int64))["elements"].drop_nulls().unique()
    outputs = kernels.filter((pl.col("family") == "gemm") & ((pl.col("m") * pl.col("n")).is_in(sizes.implode())))
    if outputs.is_empty():
        raise LayoutError("tensor parallelism can't be changed: no GEMM's output has the size of a group's message.")
    by_time = outputs.group_by("n").agg(pl.col("dur_ns").sum()).sort("dur_ns", "n", descending=True)
    hidden = int(by_time["n"][0])
    return Activations(frozenset(outputs.filter(n=hidden)["m"]), hidden, whole=False)


def of_layers(kernels: pl.DataFrame) -> Activations:
    """The activations of layers that one rank has whole: what the forward pass's GEMMs read as well as write.

    Args:
        kernels: The kernel table.

    Raises:
        LayoutError: No GEMM reads what another one writes.
    """
    gemms = kernels.filter((pl.col("family") == "gemm") & (pl.col("batch") == 1) & (pl.col("phase") == FORWARD))
    both = widths(gemms)
    if both.is_empty():
        raise LayoutError("the trace has no layers for tensor parallelism: no GEMM reads as much as one writes.")
    hidden = int(both["size"][0])
    tokens = gemms.filter((pl.col("n") == hidden) | (pl.col("k") == hidden))["m"]
    return Activations(frozenset(tokens), hidden, whole=True)


def item_bytes() -> pl.Expr:
    """Bytes of an element of what each GEMM writes."""
    return pl.col("dtype").replace_strict(OUTPUT_BYTES, default=2, return_dtype=pl.Int64)


def message_dtype() -> pl.Expr:
    """Type of a message that holds what each GEMM writes."""
    dtype = pl.col("dtype")
    kept = pl.when(dtype == "fp16").then(dtype).otherwise(pl.lit("bf16"))
    return pl.when(dtype.is_in(list(OUTPUT_BYTES))).then(pl.lit("fp32")).otherwise(kept)


def widths(gemms: pl.DataFrame) -> pl.DataFrame:
    """Each ``size`` that GEMMs both read (their depth) and write (their columns), the one most in use first.

    Args:
        gemms: Rows of the kernel table.

    Returns:
        Also ``bytes``, of the largest output of so many columns.
    """
    reads = gemms.group_by(size="k").agg(reads=pl.len())
    writes = gemms.group_by(size="n").agg(writes=pl.len(), bytes=(pl.col("m") * pl.col("n") * item_bytes()).max())
    both = reads.join(writes, on="size")
    return both.sort(pl.col("reads") * pl.col("writes"), -pl.col("size"), descending=True).select("size", "bytes")


def shared_out(kernels: pl.DataFrame, of: Activations) -> pl.DataFrame:
    """Which ``side`` of each GEMM is shared out, and its ``size``; null where none is.

    Args:
        kernels: The kernel table.
        of: What passes between its blocks.

    Raises:
        LayoutError: It can't be told for too much of the GEMMs' time.
    """
    m, n, k = (pl.col(name) for name in SIDES)
    tokens, hidden = list(of.tokens), of.hidden
    weight = k.is_in(tokens) & ~m.is_in(tokens)
    side = (
        pl.when(pl.col("family") != "gemm")
        .then(None)
        .when(of_experts())
        .then(pl.lit(EXPERTS))
        .when(pl.col("batch") > 1)
        .then(pl.lit("batch"))
        .when(weight & (n == hidden) & ((m != hidden) | pl.lit(of.whole)))
        .then(pl.lit("m"))
        .when(weight & (m == hidden) & (n != hidden))
        .then(pl.lit("n"))
        .when(~weight & (k == hidden) & (n != hidden))
        .then(pl.lit("n"))
        .when(~weight & (n == hidden) & (k != hidden))
        .then(pl.lit("k"))
        .when(~weight & (n == hidden) & pl.lit(of.whole))
        .then(pl.lit(SQUARE))
    )
    sided = kernels.with_columns(side=side)
    if of.whole:
        sided = _in_order(sided)
    _check_known(sided)
    size = pl.coalesce(*(pl.when(pl.col("side") == name).then(name) for name in SIDES))
    return sided.select("side", size=size)


def _in_order(sided: pl.DataFrame) -> pl.DataFrame:
    """``sided`` with squares told by what was launched before them, and without what is in no block.

    Forward, the GEMM behind attention takes rows; backward, those behind it all do. Forward, what takes rows follows
    what gave columns or heads.
    """
    kind, before, backward = pl.col("kind"), pl.col("before"), pl.col("phase") == BACKWARD
    order = in_blocks(sided).with_columns(
        before=kind.shift(1).over("device"),
        since=pl.when(kind != SQUARE).then(kind).forward_fill().shift(1).over("device"),
    )
    behind_heads = pl.when(backward).then(pl.col("since") == HEADS).otherwise(before == HEADS).fill_null(False)
    same_op = (pl.col("op_row").shift(1).over("device") == pl.col("op_row")).fill_null(False)
    outside = ~backward & (kind == "k") & before.fill_null("k").eq("k") & ~same_op
    told = order.select(
        "row",
        told=pl.when(kind == SQUARE)
        .then(pl.when(behind_heads).then(pl.lit("k")).otherwise(pl.lit("n")))
        .when(~outside)
        .then("side"),
        ordered=True,
    )
    rows = sided.with_row_index("row").join(told, on="row", how="left", maintain_order="left")
    return rows.with_columns(side=pl.when("ordered").then("told").otherwise("side")).select(sided.columns)


def in_blocks(sided: pl.DataFrame) -> pl.DataFrame:
    """GEMMs of activations, and attention, in order of launch.

    Args:
        sided: The kernel table with ``side``.

    Returns:
        Its rows, with their number ``row`` and ``kind``: ``side``, or ``heads`` of attention, or ``experts``.
    """
    heads = (pl.col("family") == "attention") | (pl.col("side") == "batch")
    kind = pl.when(heads).then(pl.lit(HEADS)).when(pl.col("side").is_in(["n", "k", SQUARE, EXPERTS])).then("side")
    return sided.with_row_index("row").with_columns(kind=kind).drop_nulls("kind").sort("device", "ts_ns", "row")


def _check_known(sided: pl.DataFrame) -> None:
    unknown = (pl.col("family") == "gemm") & pl.col("side").is_null()
    if share(sided, "dur_ns", unknown) > OVERLOOKED:
        row = sided.filter(unknown).sort("dur_ns").row(-1, named=True)
        raise LayoutError(f"how {row['op']} on {row['input_dims']} is split over ranks can't be told.")
