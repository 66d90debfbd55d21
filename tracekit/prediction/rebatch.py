"""The kernels of a step with another batch: which side of each grows with it, told from shapes.

Every sample passes through the same parameters, so what a kernel works on grows with the batch unless it is a parameter
or a parameter's gradient: the rows of a layer's GEMM, in the gradient of its weights the depth.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import polars as pl

from tracekit.prediction.blocks import of_experts, stored_bytes
from tracekit.prediction.layout import check_known
from tracekit.workload.parameters import GRADIENT
from tracekit.workload.signature import ITEM_BYTES, Signature

LOOKS_UP = "aten::embedding"
WEIGHT = {
    "aten::addmm": 2,
    "aten::mm": 1,
    "aten::_scaled_mm": 1,
    "aten::cudnn_convolution": 1,
    "aten::miopen_convolution": 1,
    "aten::convolution_overrideable": 1,
    "aten::_conv_depthwise2d": 1,
    LOOKS_UP: 0,
}
"""Ops of the forward pass that get a parameter, and as which of their inputs."""

Size = TypeVar("Size", int, pl.Expr)

SIDES = ("batch", "m", "n", "k")
LARGEST_SIDE = 2**31
"""Two of them make one number of 64 bits."""
OF_NO_SAMPLE = ("collective", "optimizer", "memset")


@dataclass(frozen=True)
class Parameters:
    """Shapes of a model's parameters.

    Attributes:
        shapes: All of them.
        weights: Those that a GEMM may multiply by: all but tables that rows are only looked up in.
    """

    shapes: frozenset[tuple[int, ...]]
    weights: frozenset[tuple[int, ...]]

    @cached_property
    def elements(self) -> list[int]:
        """Elements of each."""
        return sorted({math.prod(shape) for shape in self.shapes})

    @cached_property
    def matrices(self) -> list[int]:
        """The two sides of each weight as a GEMM sees it, in both orders, as one number: :func:`_pair`.

        Of three dimensions the first may count experts, each with a weight of the other two.
        """
        sides = [(shape[0], math.prod(shape[1:])) for shape in self.weights if len(shape) > 1]
        sides += [(shape[1], shape[2]) for shape in self.weights if len(shape) == 3]
        known = [pair for m, n in sides if max(m, n) < LARGEST_SIDE for pair in ((m, n), (n, m))]
        return sorted({_pair(*pair) for pair in known})

    @cached_property
    def _axes(self) -> set[int]:
        return {size for shape in self.shapes for size in shape}

    def hold(self, dims: str) -> bool | None:
        """Whether an op's inputs are parameters, their gradients or single numbers; None if it has no tensors."""
        tensors = [tensor for tensor in _inputs(dims).tensors if tensor.numel]
        return all(self._has(tensor.shape) for tensor in tensors) if tensors else None

    def _has(self, shape: tuple[int, ...]) -> bool:
        bias = len(shape) == 1 and shape[0] in self._axes
        return bias or math.prod(shape) == 1 or shape in self.shapes or shape[::-1] in self.shapes


def rebatch(kernels: pl.DataFrame, ops: pl.DataFrame, factor: float) -> pl.DataFrame:
    """The kernel table of a step whose batch is ``factor`` times as large.

    Args:
        kernels: The kernel table.
        ops: The trace's ops.
        factor: The batch over the traced one.

    Returns:
        The table with other dimensions where they change, and whether they did, ``changed``.

    Raises:
        LayoutError: Too much of what the kernels work on isn't known.
    """
    check_known(kernels.filter(~pl.col("family").is_in(OF_NO_SAMPLE)), "the batch")
    parameters = _parameters(kernels, ops)
    table = kernels.with_columns(side=_side(parameters), grows=_grows(kernels, parameters))
    sides = {name: pl.col("side") == name for name in SIDES}
    vector = pl.col("grows") & pl.col("side").is_null() & (pl.col("bytes") > 0)
    # A batch norm's rows are its channels, of which a block takes each.
    of_channels = pl.col("op").str.contains("batch_norm").fill_null(False)
    along = pl.col("rows").eq(1) | of_channels
    changes = {
        **sides,
        "rows": vector & ~along,
        "blocks": vector & ~of_channels,
        "cols": vector & along,
        "flops": vector,
        "bytes": vector | pl.col("side").is_not_null(),
    }
    fixed = {"bytes": _weight_bytes()}
    edited = {
        name: pl.when(mine).then(_times(pl.col(name), factor, fixed.get(name, pl.lit(0)))).otherwise(name)
        for name, mine in changes.items()
    }
    changed = pl.any_horizontal(*sides.values(), vector).fill_null(False)
    return table.with_columns(**edited, changed=changed).drop("side", "grows")


def weight_gradients(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Whether each kernel of a step works out the gradient of a weight.

    Args:
        kernels: The kernel table.
        ops: The trace's ops.
    """
    side = kernels.select(side=_side(_parameters(kernels, ops)))["side"]
    return (side == "k").fill_null(value=False)


def _times(size: pl.Expr, factor: float, fixed: pl.Expr) -> pl.Expr:
    return (fixed + (size - fixed) * factor).ceil().cast(pl.Int64)


def _parameters(kernels: pl.DataFrame, ops: pl.DataFrame) -> Parameters:
    """From the forward pass's layers and the gradients of the backward pass.

    A table of positions is as large as what a sample's layers hand on, so it must not be taken for a GEMM's weight.
    """
    weight = pl.col("op").replace_strict(WEIGHT, default=None, return_dtype=pl.Int64)
    forward = kernels.filter(pl.col("phase") == "forward").select("op", "input_dims", weight=weight)
    multiplied = _shapes(forward.filter(pl.col("op") != LOOKS_UP))
    gradients, tables = (
        _shapes(ops.filter(pl.col("name") == name).select("input_dims", weight=pl.lit(0, pl.Int64)))
        for name in (GRADIENT, LOOKS_UP)
    )
    return Parameters(multiplied | gradients | tables, multiplied | (gradients - tables))


def _shapes(told: pl.DataFrame) -> frozenset[tuple[int, ...]]:
    """Of those inputs of ops that ``weight`` says."""
    rows = told.select("input_dims", "weight").drop_nulls().unique().iter_rows()
    return frozenset(tensor.shape for dims, weight in rows for tensor in _inputs(dims).at(weight))


def _side(parameters: Parameters) -> pl.Expr:
    """Which side of a GEMM or of attention grows with the batch; null for all others."""
    family, backward = pl.col("family"), pl.col("phase") == "backward"
    several = (family == "gemm") & (pl.col("batch") > 1) & ~of_experts()
    of_weight = _pair(pl.col("m"), pl.col("n")).is_in(parameters.matrices)
    return (
        pl.when(pl.col("phase") == "optimizer").then(None)
        .when((family == "attention") | several).then(pl.lit("batch"))
        .when((family == "gemm") & backward & of_weight).then(pl.lit("k"))
        .when((family == "conv") & (pl.col("direction") == "wgrad")).then(pl.lit("k"))
        .when(family.is_in(["gemm", "conv", "moe"])).then(pl.lit("m"))
    )  # fmt: skip


def _weight_bytes() -> pl.Expr:
    """Bytes of weights, which are read whatever the batch, of GEMMs that say themselves what they move."""
    numel = pl.col("batch") * pl.when(pl.col("side") == "k").then(pl.col("m") * pl.col("n")).otherwise(
        pl.col("n") * pl.col("k")
    )
    item = pl.col("dtype").replace_strict(ITEM_BYTES, default=4, return_dtype=pl.Int64)
    return (
        pl.when(pl.col("family") == "conv").then(numel * item)
        .when((pl.col("family") == "gemm") & (pl.col("side") == "m")).then(stored_bytes())
        .otherwise(0)
    )  # fmt: skip


def _grows(kernels: pl.DataFrame, parameters: Parameters) -> pl.Series:
    """Whether what a kernel moves grows with the batch; an op that names no tensor is told by its elements."""
    told = {dims: parameters.hold(dims) for dims in kernels["input_dims"].drop_nulls().unique()}
    fixed = pl.col("input_dims").replace_strict(told, default=None, return_dtype=pl.Boolean)
    elements = (pl.col("rows") * pl.col("cols")).is_in([1, *parameters.elements])
    to_host = (pl.col("copy_kind") == "DtoH").fill_null(False)
    never = pl.col("family").is_in(OF_NO_SAMPLE) | (pl.col("phase") == "optimizer") | to_host
    return kernels.select(grows=~never & ~fixed.fill_null(elements).fill_null(False))["grows"]


def _pair(rows: Size, cols: Size) -> Size:
    return rows * 2 * LARGEST_SIDE + cols


def _inputs(dims: str) -> Signature:
    return Signature.parse("", dims, None, None)
