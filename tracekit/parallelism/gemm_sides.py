"""Tell which dimension of each GEMM in a transformer block tensor parallelism splits.

What one block passes to the next has as many rows as there are tokens, and ``hidden`` columns. So a GEMM that reads it
is split by its output's columns, and one that writes it by the dimension that is summed over::

    tokens x hidden --GEMM--> tokens x 4 hidden --GEMM--> tokens x hidden
                      split by n                  split by k
"""

from dataclasses import dataclass

import polars as pl

from tracekit.messages import layouts
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.unknown_work import MAX_UNKNOWN_PCT
from tracekit.workload.module_paths import BACKWARD, FORWARD, OPTIMIZER
from tracekit.workload.step_kinds import compute_time_share

GEMM_SIDES = ("m", "n", "k")
OUTPUT_ITEM_BYTES = {"fp32": 4, "tf32": 4}
"""Bytes per element of a GEMM's output; 2 for all other types."""

ACTIVATION_ITEM_BYTES = 2
"""Bytes per element of the activations of GEMMs with narrower (quantised) weights."""

SQUARE, HEADS, EXPERTS = "square", "heads", "experts"
"""Further values of ``side`` and ``kind``.

``square``: a hidden x hidden GEMM, whose shape alone doesn't reveal the split dimension. ``heads``: attention.
``experts``: GEMMs of a mixture of experts.
"""

_EXPERT_GEMM_NAMES = r"(?i)moe|expert|grouped_mm|^_GroupedLinear|matmul_ogs"


ADAPTER = r"^(.*)\.(LoraDown|LoraUp)(?:_\d+)?$"
"""Path of a layer with an adapter, and which layer of the adapter (capturing/lora.py)."""


@dataclass(frozen=True, slots=True)
class Activations:
    """The activations that one transformer block passes to the next.

    Attributes:
        tokens: Their numbers of rows, which may differ between steps.
        hidden: Their number of columns.
        is_unsharded: Whether one rank has whole layers, so that a hidden x hidden GEMM may be split too.
    """

    tokens: frozenset[int]
    hidden: int
    is_unsharded: bool


def is_expert_gemm() -> pl.Expr:
    """Select GEMMs that compute several experts at once."""
    named = [pl.col(name).str.contains(_EXPERT_GEMM_NAMES).fill_null(value=False) for name in ("op", "name")]
    return (pl.col("family") == "gemm") & (pl.col("batch") > 1) & pl.any_horizontal(named)


def is_adapter_gemm() -> pl.Expr:
    """Select GEMMs of trained adapters."""
    return (pl.col("family") == "gemm") & pl.col("module").str.contains(ADAPTER).fill_null(value=False)


def compute_activation_bytes(n: pl.Expr, k: pl.Expr) -> pl.Expr:
    """Return the activation bytes of GEMMs whose own ``bytes`` count narrower weights too.

    Args:
        n: Columns of the output.
        k: Columns of the input.
    """
    return ACTIVATION_ITEM_BYTES * pl.col("batch") * pl.col("m") * (n + k)


def compute_weight_bytes() -> pl.Expr:
    """Return the weight bytes of GEMMs with narrower weights."""
    return (pl.col("bytes") - compute_activation_bytes(pl.col("n"), pl.col("k"))).clip(0)


def infer_activations_from_collectives(kernels: pl.DataFrame, calls: pl.DataFrame) -> Activations:
    """Infer the activations of tensor-parallel layers: GEMM outputs that are as large as a message of the group.

    Args:
        kernels: The kernel table.
        calls: The collectives of tensor-parallel groups, as ``list_collectives`` returns them.

    Raises:
        LayoutError: No GEMM's output is as large as a message.
    """
    item = pl.col("dtype").replace_strict(
        {**OUTPUT_ITEM_BYTES, "fp16": 2, "bf16": 2}, default=None, return_dtype=pl.Float64
    )
    sizes = calls.select(elements=(pl.col("bytes") / item).round().cast(pl.Int64))["elements"].drop_nulls().unique()
    outputs = kernels.filter((pl.col("family") == "gemm") & ((pl.col("m") * pl.col("n")).is_in(sizes.implode())))
    if outputs.is_empty():
        raise LayoutError(layouts.NO_TENSOR_PARALLEL_GEMM())
    by_time = outputs.group_by("n").agg(pl.col("dur_ns").sum()).sort("dur_ns", "n", descending=True)
    hidden = int(by_time["n"][0])
    return Activations(frozenset(outputs.filter(n=hidden)["m"]), hidden, is_unsharded=False)


def infer_activations_from_gemms(kernels: pl.DataFrame) -> Activations:
    """Infer the activations of unsharded layers: sizes that forward GEMMs both read and write.

    Args:
        kernels: The kernel table.

    Raises:
        LayoutError: No GEMM reads what another one writes.
    """
    whole = (pl.col("batch") == 1) & (pl.col("phase") == FORWARD) & ~is_adapter_gemm()
    gemms = kernels.filter((pl.col("family") == "gemm") & whole)
    both = find_hidden_sizes(gemms)
    if both.is_empty():
        raise LayoutError(layouts.NO_PAIRED_GEMMS())
    hidden = int(both["size"][0])
    tokens = gemms.filter((pl.col("n") == hidden) | (pl.col("k") == hidden))["m"]
    return Activations(frozenset(tokens), hidden, is_unsharded=True)


def compute_item_bytes() -> pl.Expr:
    """Return the bytes per element of each GEMM's output."""
    return pl.col("dtype").replace_strict(OUTPUT_ITEM_BYTES, default=2, return_dtype=pl.Int64)


def choose_message_dtype() -> pl.Expr:
    """Return the type of a message that holds each GEMM's output."""
    dtype = pl.col("dtype")
    kept = pl.when(dtype == "fp16").then(dtype).otherwise(pl.lit("bf16"))
    return pl.when(dtype.is_in(list(OUTPUT_ITEM_BYTES))).then(pl.lit("fp32")).otherwise(kept)


def find_hidden_sizes(gemms: pl.DataFrame) -> pl.DataFrame:
    """Find each ``size`` that GEMMs both read (as k) and write (as n), the most frequent one first.

    Args:
        gemms: Rows of the kernel table.

    Returns:
        ``size``, and ``bytes`` of the largest output with that many columns.
    """
    reads = gemms.group_by(size="k").agg(reads=pl.len())
    writes = gemms.group_by(size="n").agg(
        writes=pl.len(), bytes=(pl.col("m") * pl.col("n") * compute_item_bytes()).max()
    )
    both = reads.join(writes, on="size")
    return both.sort(pl.col("reads") * pl.col("writes"), -pl.col("size"), descending=True).select("size", "bytes")


def infer_split_sides(kernels: pl.DataFrame, activations: Activations) -> pl.DataFrame:
    """Infer which dimension (``side``) of each GEMM is split, and its ``size``; null where none is.

    Args:
        kernels: The kernel table.
        activations: What the blocks pass to each other.

    Raises:
        LayoutError: The split dimension is unknown for too much of the GEMMs' time.
    """
    m, n, k = (pl.col(name) for name in GEMM_SIDES)
    tokens, hidden = list(activations.tokens), activations.hidden
    weight = k.is_in(tokens) & ~m.is_in(tokens)
    side = (
        pl.when((pl.col("family") == "linear_attention") & (pl.col("batch") > 1))
        .then(pl.lit("batch"))
        .when((pl.col("family") != "gemm") | (pl.col("phase") == OPTIMIZER) | is_adapter_gemm())
        .then(None)
        .when(is_expert_gemm())
        .then(pl.lit(EXPERTS))
        .when(pl.col("batch") > 1)
        .then(pl.lit("batch"))
        .when(weight & (n == hidden) & ((m != hidden) | pl.lit(activations.is_unsharded)))
        .then(pl.lit("m"))
        .when(weight & (m == hidden) & (n != hidden))
        .then(pl.lit("n"))
        .when(~weight & (k == hidden) & (n != hidden))
        .then(pl.lit("n"))
        .when(~weight & (n == hidden) & (k != hidden))
        .then(pl.lit("k"))
        .when(~weight & (n == hidden) & pl.lit(activations.is_unsharded))
        .then(pl.lit(SQUARE))
    )
    sided = kernels.with_columns(side=side)
    if activations.is_unsharded:
        sided = _resolve_square_gemms(sided)
    if kernels.select(is_adapter_gemm().any()).item():
        sided = _split_adapters(sided)
    _check_sides_known(sided)
    size = pl.coalesce(*(pl.when(pl.col("side") == name).then(name) for name in GEMM_SIDES))
    return sided.select("side", size=size)


def _split_adapters(sided: pl.DataFrame) -> pl.DataFrame:
    """Split the side of each adapter that its layer splits: outputs of the second GEMM, or inputs of the first.

    With outputs split, the first GEMM is whole on each rank; with inputs split, its partial results go through the
    second one into the sum that the layer's all-reduce makes::

        outputs split    x --down--> rank --up--> outputs / ranks
        inputs split     x / ranks --down--> rank (partial) --up--> outputs (partial)
    """
    module = pl.col("module").str
    forward = (pl.col("phase") == FORWARD) & pl.col("side").is_in(["n", "k"])
    bases = sided.filter(forward).select(
        layer=module.replace(r"\.[^.]*$", ""),
        base="side",
        split=pl.when(pl.col("side") == "n").then("n").otherwise("k"),
    )
    joined = sided.with_columns(
        layer=pl.when(is_adapter_gemm()).then(module.extract(ADAPTER, 1)), which=module.extract(ADAPTER, 2)
    ).join(bases.unique("layer"), on="layer", how="left", maintain_order="left")
    splits = (pl.col("base") == "n") & (pl.col("which") == "LoraUp")
    splits |= (pl.col("base") == "k") & (pl.col("which") == "LoraDown")
    # Of two sides of that size either may be split: the work is the same.
    side = pl.coalesce(*(pl.when(pl.col(name) == pl.col("split")).then(pl.lit(name)) for name in ("n", "k", "m")))
    return joined.with_columns(side=pl.when(splits).then(side).otherwise("side")).select(sided.columns)


def _resolve_square_gemms(sided: pl.DataFrame) -> pl.DataFrame:
    """Resolve hidden x hidden GEMMs by what was launched before them, and drop GEMMs outside of blocks.

    Forward, the GEMM after attention is split by rows; backward, all GEMMs after attention are. Forward, a GEMM split
    by rows follows one split by columns, or attention.
    """
    kind, before, backward = pl.col("kind"), pl.col("before"), pl.col("phase") == BACKWARD
    order = list_block_kernels(sided).with_columns(
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


def list_block_kernels(sided: pl.DataFrame) -> pl.DataFrame:
    """List GEMMs of activations, and attention, in order of launch.

    Args:
        sided: The kernel table with ``side``.

    Returns:
        Rows of the kernel table with their number ``row`` and ``kind``: ``side``, ``heads`` for attention, or
        ``experts``.
    """
    heads = (pl.col("family") == "attention") | (pl.col("side") == "batch")
    kind = (
        pl.when(is_adapter_gemm())
        .then(None)
        .when(heads)
        .then(pl.lit(HEADS))
        .when(pl.col("side").is_in(["n", "k", SQUARE, EXPERTS]))
        .then("side")
    )
    return sided.with_row_index("row").with_columns(kind=kind).drop_nulls("kind").sort("device", "ts_ns", "row")


def _check_sides_known(sided: pl.DataFrame) -> None:
    unknown = (pl.col("family") == "gemm") & pl.col("side").is_null()
    unknown &= (pl.col("phase") != OPTIMIZER) & ~is_adapter_gemm()
    if compute_time_share(sided, "dur_ns", unknown) > MAX_UNKNOWN_PCT:
        row = sided.filter(unknown).sort("dur_ns").row(-1, named=True)
        raise LayoutError(layouts.GEMM_SPLIT_UNKNOWN(op=row["op"], shapes=row["input_dims"]))
