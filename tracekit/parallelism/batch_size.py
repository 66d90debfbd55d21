"""Scale a step's kernels to another batch: find the dimension of each that grows with the batch, from shapes.

Every sample passes through the same parameters. So a kernel's work grows with the batch unless it works on a parameter
or a parameter's gradient. In a layer's GEMM the rows (m) grow, in the GEMM of its weight gradient the depth (k).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import polars as pl

from tracekit.messages import layouts
from tracekit.parallelism.gemm_sides import compute_activation_bytes, compute_weight_bytes, is_expert_gemm
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.unknown_work import check_work_known
from tracekit.workload.ops.fbgemm import BACKWARD_FUNCTION, EXACT_BACKWARD_OP
from tracekit.workload.ops.gemm_sequences import TokenSpread
from tracekit.workload.parameters import ACCUMULATE_GRAD_OP
from tracekit.workload.signature import ITEM_BYTES, Signature

EMBEDDING_OP = "aten::embedding"
WEIGHT_INPUT = {
    "aten::addmm": 2,
    "aten::mm": 1,
    "aten::_scaled_mm": 1,
    "tracekit::quantised_linear": 1,
    "aten::cudnn_convolution": 1,
    "aten::miopen_convolution": 1,
    "aten::convolution_overrideable": 1,
    "aten::_conv_depthwise2d": 1,
    EMBEDDING_OP: 0,
}
"""Ops of the forward pass with a parameter among their inputs, and its index."""

Size = TypeVar("Size", int, pl.Expr)

SCALED_SIDES = ("batch", "m", "n", "k")
"""Dimensions that may grow with the batch."""
MAX_SIDE = 2**31
"""Limit of a dimension, so that two of them fit into one 64-bit number."""
BATCH_INDEPENDENT_FAMILIES = ("collective", "optimizer", "memset")
"""Families whose work doesn't depend on the batch."""
TABLE_UPDATE_OP = f"{BACKWARD_FUNCTION.pattern}|{EXACT_BACKWARD_OP.pattern}"
"""Ops of a backward pass that update embedding tables, row by row as they were looked up."""


@dataclass(frozen=True)
class ParameterShapes:
    """Shapes of a model's parameters.

    Attributes:
        shapes: All of them.
        weight_shapes: Those that a GEMM may multiply by: all but embedding tables.
    """

    shapes: frozenset[tuple[int, ...]]
    weight_shapes: frozenset[tuple[int, ...]]

    @cached_property
    def element_counts(self) -> list[int]:
        """Numbers of elements of the parameters."""
        return sorted({math.prod(shape) for shape in self.shapes})

    @cached_property
    def packed_matrices(self) -> list[int]:
        """Rows and columns of each weight in GEMMs, in both orders, packed into one number by :func:`_pack_sides`.

        The first of three dimensions may count experts, each with a weight of the other two.
        """
        sides = [(shape[0], math.prod(shape[1:])) for shape in self.weight_shapes if len(shape) > 1]
        sides += [(shape[1], shape[2]) for shape in self.weight_shapes if len(shape) == 3]
        known = [pair for m, n in sides if max(m, n) < MAX_SIDE for pair in ((m, n), (n, m))]
        return sorted({_pack_sides(*pair) for pair in known})

    @cached_property
    def _axis_sizes(self) -> set[int]:
        return {size for shape in self.shapes for size in shape}

    def cover_inputs(self, dims: str) -> bool | None:
        """Return whether an op's inputs are all parameters, gradients or scalars; None if it has no tensors."""
        tensors = [tensor for tensor in _parse_inputs(dims).tensors if tensor.numel]
        return all(self._contain_shape(tensor.shape) for tensor in tensors) if tensors else None

    def _contain_shape(self, shape: tuple[int, ...]) -> bool:
        bias = len(shape) == 1 and shape[0] in self._axis_sizes
        return bias or math.prod(shape) == 1 or shape in self.shapes or shape[::-1] in self.shapes


def scale_batch(kernels: pl.DataFrame, ops: pl.DataFrame, factor: float) -> pl.DataFrame:
    """Return the kernel table of a step with a batch ``factor`` times as large.

    Args:
        kernels: The kernel table.
        ops: The trace's ops.
        factor: Batch relative to the trace's.

    Returns:
        The table with other dimensions where they change, and ``changed``, whether they did.

    Raises:
        LayoutError: Too much of the kernels' work is unknown.
    """
    changing = kernels.filter(~_is_batch_independent())
    check_work_known(changing, layouts.BATCH_WORK_UNKNOWN, layouts.BATCH_SHAPES_UNKNOWN)
    parameters = _collect_parameters(kernels, ops)
    table = kernels.with_columns(side=_choose_scaled_side(parameters), grows=_find_scaled_kernels(kernels, parameters))
    sides = {name: pl.col("side") == name for name in SCALED_SIDES}
    vector = pl.col("grows") & pl.col("side").is_null() & (pl.col("bytes") > 0)
    # A batch norm's rows are its channels, one per block.
    of_channels = pl.col("op").str.contains("batch_norm").fill_null(False)
    along = pl.col("rows").eq(1) | of_channels
    changes = {
        **sides,
        "mask_batch": sides["batch"] & (pl.col("mask_batch") == pl.col("batch")),
        "rows": vector & ~along,
        "blocks": vector & ~of_channels,
        "cols": vector & along,
        "flops": vector,
        **dict.fromkeys(("serial_clocks", "warp_clocks", "accessed_bytes", "streamed_bytes", "host_bytes"), vector),
        "bytes": vector | pl.col("side").is_not_null(),
    }
    fixed = {"bytes": _compute_fixed_bytes()}
    edited = {
        name: pl.when(mine).then(_scale_size(pl.col(name), factor, fixed.get(name, pl.lit(0)))).otherwise(name)
        for name, mine in changes.items()
    }
    changed = pl.any_horizontal(*sides.values(), vector).fill_null(False)
    return _spread_over_experts(table.with_columns(**edited, changed=changed).drop("side", "grows"), kernels, factor)


def _spread_over_experts(scaled: pl.DataFrame, kernels: pl.DataFrame, factor: float) -> pl.DataFrame:
    """Spread the tokens of another batch over experts: more tokens hit more of them, and read more weights.

    Args:
        scaled: The kernel table after the change; of experts' GEMMs only ``m`` has grown.
        kernels: The kernel table before it.
        factor: Batch relative to the trace's.
    """
    routed = kernels.with_row_index("row").drop_nulls(["tokens", "experts", "top_k"]).filter(pl.col("family") == "gemm")
    if routed.is_empty():
        return scaled
    keys = ["tokens", "experts", "top_k"]
    sizes = routed.select(keys).unique().rows()
    spread = [TokenSpread(math.ceil(tokens * factor), *chosen).build_columns(0, 0) for tokens, *chosen in sizes]
    table = (
        pl.DataFrame(spread).rename(lambda name: f"new {name}").hstack(pl.DataFrame(sizes, schema=keys, orient="row"))
    )
    found = routed.join(table, on=keys, how="left", maintain_order="left")
    activations = compute_activation_bytes(pl.col("n"), pl.col("k"))
    weights = compute_weight_bytes() * pl.col("new batch") / pl.col("batch")
    grown = activations * pl.col("new batch") * pl.col("new m") / (pl.col("batch") * pl.col("m"))
    changes = ("batch", "m", "work_low", "work_high", "tokens", "bytes")
    bytes_moved = (weights + grown).cast(pl.Int64).alias("new bytes")
    told = found.with_columns(bytes_moved).select("row", *(f"new {name}" for name in changes))
    joined = scaled.with_row_index("row").join(told, on="row", how="left", maintain_order="left")
    return joined.with_columns(
        pl.when(pl.col("new m").is_not_null()).then(f"new {name}").otherwise(name).alias(name) for name in changes
    ).select(scaled.columns)


def find_weight_gradients(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Find the kernels of a step that compute weight gradients.

    Args:
        kernels: The kernel table.
        ops: The trace's ops.
    """
    side = kernels.select(side=_choose_scaled_side(_collect_parameters(kernels, ops)))["side"]
    return (side == "k").fill_null(value=False)


def _scale_size(size: pl.Expr, factor: float, fixed: pl.Expr) -> pl.Expr:
    return (fixed + (size - fixed) * factor).ceil().cast(pl.Int64)


def _collect_parameters(kernels: pl.DataFrame, ops: pl.DataFrame) -> ParameterShapes:
    """Collect the parameters from the forward pass's layers and the backward pass's gradients.

    A table of positions is as large as a sample's activations, so it must not count as a GEMM's weight.
    """
    weight = pl.col("op").replace_strict(WEIGHT_INPUT, default=None, return_dtype=pl.Int64)
    forward = kernels.filter(pl.col("phase") == "forward").select("op", "input_dims", weight=weight)
    multiplied = _collect_shapes(forward.filter(pl.col("op") != EMBEDDING_OP))
    gradients, tables = (
        _collect_shapes(ops.filter(pl.col("name") == name).select("input_dims", weight=pl.lit(0, pl.Int64)))
        for name in (ACCUMULATE_GRAD_OP, EMBEDDING_OP)
    )
    return ParameterShapes(multiplied | gradients | tables, multiplied | (gradients - tables))


def _collect_shapes(told: pl.DataFrame) -> frozenset[tuple[int, ...]]:
    """Collect the shapes of the ops' inputs with index ``weight``."""
    rows = told.select("input_dims", "weight").drop_nulls().unique().iter_rows()
    return frozenset(tensor.shape for dims, weight in rows for tensor in _parse_inputs(dims).get_tensors(weight))


def _choose_scaled_side(parameters: ParameterShapes) -> pl.Expr:
    """Choose the dimension of a GEMM or of attention that grows with the batch; null for all other kernels."""
    family, backward = pl.col("family"), pl.col("phase") == "backward"
    several = (family == "gemm") & (pl.col("batch") > 1) & ~is_expert_gemm()
    several |= (family == "linear_attention") & pl.col("m").is_not_null()
    of_weight = _pack_sides(pl.col("m"), pl.col("n")).is_in(parameters.packed_matrices)
    return (
        pl.when(pl.col("phase") == "optimizer").then(None)
        .when((family == "attention") | several).then(pl.lit("batch"))
        .when((family == "gemm") & backward & of_weight).then(pl.lit("k"))
        .when((family == "conv") & (pl.col("direction") == "wgrad")).then(pl.lit("k"))
        .when(family.is_in(["gemm", "conv", "moe"])).then(pl.lit("m"))
    )  # fmt: skip


def _compute_fixed_bytes() -> pl.Expr:
    """Compute the bytes of weights, which don't grow, of GEMMs and convolutions that count them in ``bytes``."""
    numel = pl.col("batch") * pl.when(pl.col("side") == "k").then(pl.col("m") * pl.col("n")).otherwise(
        pl.col("n") * pl.col("k")
    )
    item = pl.col("dtype").replace_strict(ITEM_BYTES, default=4, return_dtype=pl.Int64)
    return (
        pl.when(pl.col("family") == "conv").then(numel * item)
        .when((pl.col("family") == "gemm") & (pl.col("side") == "m"))
        .then(pl.min_horizontal(compute_weight_bytes(), numel * item))
        .otherwise(0)
    )  # fmt: skip


def _find_scaled_kernels(kernels: pl.DataFrame, parameters: ParameterShapes) -> pl.Series:
    """Find the kernels whose bytes grow with the batch; where an op has no tensors, by the number of elements."""
    told = {dims: parameters.cover_inputs(dims) for dims in kernels["input_dims"].drop_nulls().unique()}
    fixed = pl.col("input_dims").replace_strict(told, default=None, return_dtype=pl.Boolean)
    elements = (pl.col("rows") * pl.col("cols")).is_in([1, *parameters.element_counts])
    to_host = (pl.col("copy_kind") == "DtoH").fill_null(False)
    never = _is_batch_independent() | (pl.col("phase") == "optimizer") | to_host
    return kernels.select(grows=~never & ~fixed.fill_null(elements).fill_null(False))["grows"]


def _is_batch_independent() -> pl.Expr:
    updates_tables = pl.col("op").str.contains(TABLE_UPDATE_OP).fill_null(value=False)
    return pl.col("family").is_in(BATCH_INDEPENDENT_FAMILIES) & ~updates_tables


def _pack_sides(rows: Size, cols: Size) -> Size:
    return rows * 2 * MAX_SIDE + cols


def _parse_inputs(dims: str) -> Signature:
    return Signature.parse("", dims, None, None)


MAX_DECODE_QUERIES = 16
"""Queries of a sequence in a decode step: one, or a few that are verified together."""


def set_context_length(kernels: pl.DataFrame, keys: int) -> pl.DataFrame:
    """Return the kernel table of a decode batch whose sequences see other numbers of keys.

    Only attention over the cache grows with them; windows stay as they are.

    Args:
        kernels: The kernel table.
        keys: Keys of each sequence, its own token included.

    Returns:
        The table with another ``kv_len``, and ``changed``, whether it is another one.

    Raises:
        LayoutError: No attention of a decode batch has known queries and keys.
    """
    known = (pl.col("family") == "attention") & pl.col("kv_len").is_not_null() & (pl.col("phase") != "backward")
    decode = known & (pl.col("q_len") <= MAX_DECODE_QUERIES) & (pl.col("q_len") < pl.col("kv_len"))
    if not kernels.select(decode.any()).item():
        raise LayoutError(layouts.CONTEXT_UNKNOWN())
    return kernels.with_columns(
        kv_len=pl.when(decode).then(keys).otherwise("kv_len"),
        changed=(decode & (pl.col("kv_len") != keys)).fill_null(False),
    )
