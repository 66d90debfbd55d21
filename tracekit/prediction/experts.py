"""Mixtures of experts that one rank has whole, and a rank's work once several share them.

As expert parallelism in Megatron-LM, DeepSpeed and torchtitan has it, and in serving engines whose ranks each attend to
requests of their own: of ``n`` data-parallel ranks each has an ``n``-th of the experts, and gets what all of them send
these. So a rank works through as many tokens as before, more for each expert and with fewer weights to read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.prediction.blocks import of_experts, stored_bytes
from tracekit.prediction.layout import OVERLOOKED, Layout, LayoutError, shares_experts
from tracekit.prediction.memory import gradients
from tracekit.replay.run import Run
from tracekit.workload.phases import BACKWARD, FORWARD
from tracekit.workload.shares import share
from tracekit.workload.signature import Signature, Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a job.

    Attributes:
        number: Of experts in a layer.
        hidden: Width of a token.
        weights: Rows and columns of an expert's weights, in either order.
        stacked: Whether the weights of a layer's experts are one tensor.
        gemms: Their GEMMs in order of launch: ``row`` in the kernel table, ``step``, ``device``, ``phase``,
            ``dtype``, ``ts_ns``, ``dur_ns``; ``layer``, a number for each pass through one layer's; and ``pairs``, the
            tokens that the experts work through, one counted for each expert that it visits.
    """

    number: int
    hidden: int
    weights: frozenset[tuple[int, int]]
    stacked: bool
    gemms: pl.DataFrame

    def hold(self, tensor: Tensor) -> bool:
        """Whether a tensor is the weights of a layer's experts, or of one of them."""
        many = (self.number,) if self.stacked else ()
        return tensor.shape[-2:] in self.weights and tensor.shape[:-2] == many


def recognise_experts(run: Run) -> Experts:
    """The experts of a traced job, by the grouped GEMMs that all of them take part in.

    Args:
        run: The measured run.

    Raises:
        LayoutError: There are none, or their work isn't known.
    """
    kernels = run.kernels
    unknown = (pl.col("family") == "moe") & pl.col("work_from").is_null()
    if (part := share(kernels, "dur_ns", unknown)) > OVERLOOKED:
        raise LayoutError(
            f"expert parallelism can't be predicted: {part:.0f} % of GPU time is MoE kernels without known work."
        )
    order = kernels.with_row_index("row").filter(pl.col("family").is_in(["gemm", "attention"]))
    in_turn = order.sort("device", "ts_ns", "row").with_columns(mine=of_experts())
    found = in_turn.with_columns(visit=pl.struct("mine", "device", "phase").rle_id()).filter("mine")
    forward = found.filter(pl.col("phase") == FORWARD)
    if forward.is_empty():
        raise LayoutError(
            "the trace has no MoE layers for expert parallelism: none run their experts at once, as grouped GEMMs do."
        )
    first, last = forward.row(0, named=True), forward.filter(pl.col("visit") == forward["visit"][0]).row(-1, named=True)
    if first["k"] != last["n"]:
        raise LayoutError(
            f"experts read tokens {first['k']} wide and write them {last['n']} wide: they can't be recognised."
        )
    weights = frozenset(pair for n, k in forward.select("n", "k").iter_rows() for pair in ((n, k), (k, n)))
    shapes = [_shapes(dims) for dims in forward["input_dims"].drop_nulls().unique()]
    number = max([*found["batch"], *map(_number, shapes)])
    stacked = any(len(shape) == 3 and shape[0] == number for inputs in shapes for shape in inputs)
    tokens = pl.when(_of_weights(weights)).then("k").otherwise("m")
    told = found.with_columns(layer=_layers(forward), pairs=pl.col("batch") * tokens)
    columns = ("row", "step", "device", "phase", "dtype", "ts_ns", "dur_ns", "layer", "pairs")
    return Experts(number, first["k"], weights, stacked, told.select(columns))


def _shapes(dims: str) -> list[Shape]:
    return [tensor.shape for tensor in Signature.parse("", dims, None, None).tensors]


def _number(shapes: Sequence[Shape]) -> int:
    """How many experts an op's inputs name: their weights together, or a score for each; 0 where they don't."""
    stacked = [shape[0] for shape in shapes[1:] if len(shape) == 3]
    scored = len(shapes) == 2 and len(shapes[0]) == len(shapes[1]) == 2 and shapes[0][0] == shapes[1][0]
    return stacked[0] if stacked else shapes[1][1] if scored else 0


def _layers(forward: pl.DataFrame) -> pl.Expr:
    """Passes through one layer's experts; where the backward pass computes a layer again, that is one of its own."""
    each = forward.group_by("visit").len()["len"].mode().min()
    place, count = pl.int_range(pl.len()).over("visit"), pl.len().over("visit")
    again = (pl.col("phase") == BACKWARD) & (place < count - 2 * pl.lit(each))
    return pl.struct("visit", again).rle_id()


def _of_weights(weights: frozenset[tuple[int, int]]) -> pl.Expr:
    """Which GEMMs work out gradients of weights, whose depth is tokens."""
    known = [rows * 2**32 + cols for rows, cols in weights]
    sides = pl.col("m") * 2**32 + pl.col("n"), pl.col("n") * 2**32 + pl.col("k")
    of_weight, of_input = (side.is_in(known) for side in sides)
    return (pl.col("phase") == BACKWARD) & of_weight & ~of_input


def part_of_parameters(run: Run) -> float:
    """Part of a job's parameters that is its experts', 0 where the trace doesn't tell.

    Args:
        run: The measured run.
    """
    experts, found = recognise_experts(run), gradients(run) or []
    every = sum(one.numel for one in found)
    return sum(one.numel for one in found if experts.hold(one)) / every if every else 0.0


def kept_parameters(run: Run, layouts: tuple[Layout, Layout] | None) -> float:
    """Part of its parameters that a rank keeps once replicas share the experts, besides what sharding leaves it.

    Sharded over all replicas or over those of the same experts: each rank keeps as much of both.

    Args:
        run: The measured run.
        layouts: Of the trace, and on the target; None where it stays.
    """
    if layouts is None or not shares_experts(*layouts) or layouts[1].sharded:
        return 1.0
    part = part_of_parameters(run)
    return 1 - part + part / layouts[1].senders


def share_experts(kernels: pl.DataFrame, experts: Experts, part: float, ranks: int) -> pl.DataFrame:
    """The kernel table of one of ``ranks`` that share the experts.

    Args:
        kernels: The kernel table.
        experts: Its experts.
        part: Of the parameters that is the experts'.
        ranks: That share them.

    Returns:
        The table with other dimensions where they change, and whether they did, ``changed``.

    Raises:
        LayoutError: There aren't as many experts for each.
    """
    if experts.number % ranks:
        raise LayoutError(f"{experts.number} experts can't be split evenly over {ranks} ranks.")
    table = kernels.with_row_index("number")
    gemm = pl.col("number").is_in(experts.gemms["row"].implode())
    of_weight = _of_weights(experts.weights)
    pairs = pl.col("batch") * pl.when(of_weight).then("k").otherwise("m")
    batch = pl.min_horizontal(pl.lit(experts.number // ranks), pairs)
    side = (pairs / batch).ceil()
    touched = {dims: _touches(experts, dims) for dims in table["input_dims"].drop_nulls().unique()}
    works = pl.col("input_dims").replace_strict(touched, default=False, return_dtype=pl.Boolean).fill_null(False)
    memory_bound = pl.col("rows").is_not_null() & works & (pl.col("family") != "optimizer")
    optimizer = pl.col("family") == "optimizer"
    kept = pl.when(optimizer).then(1 - part + part / ranks).otherwise(1 / ranks)
    vector = memory_bound | optimizer
    by_column = pl.col("rows") == 1
    edited = {
        "batch": pl.when(gemm).then(batch).otherwise("batch"),
        "m": pl.when(gemm & ~of_weight).then(side).otherwise("m"),
        "k": pl.when(gemm & of_weight).then(side).otherwise("k"),
        **{name: pl.when(vector & ~by_column).then(pl.col(name) * kept).otherwise(name) for name in ("rows", "blocks")},
        "cols": pl.when(vector & by_column).then(pl.col("cols") * kept).otherwise("cols"),
        "flops": pl.when(vector).then(pl.col("flops") * kept).otherwise("flops"),
        "bytes": pl.when(gemm)
        .then(pl.col("bytes") - stored_bytes() * (1 - batch / pl.col("batch")))
        .when(vector)
        .then(pl.col("bytes") * kept)
        .otherwise("bytes"),
    }
    whole = {name: value.ceil().cast(pl.Int64) for name, value in edited.items()}
    return table.with_columns(**whole, changed=(gemm | vector).fill_null(False)).drop("number")


def _touches(experts: Experts, dims: str) -> bool:
    """Whether an op on such inputs works on experts' weights."""
    return any(experts.hold(tensor) for tensor in Signature.parse("", dims, None, None).tensors)
