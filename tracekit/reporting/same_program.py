"""Detect whether two runs are of the same program, possibly with another batch, precision or layout."""

import json
from collections import Counter
from collections.abc import Sequence

import polars as pl

MIN_SHARED_PCT = 50.0
"""Percent of common kernels from which two runs count as the same program."""

WEIGHT_FAMILIES = ("gemm", "conv")
"""Families whose kernels use weights. The shapes of weights don't depend on batch or precision."""

MIN_WEIGHT_DIMS = 2
"""Minimum number of dimensions of a weight."""

OperandShapes = frozenset[tuple[int, ...]]


def is_same_program(a: pl.DataFrame, b: pl.DataFrame, shared_pct: float, sharded: bool) -> bool:
    """Return whether two runs' kernels belong to the same program, as far as ops, shapes and weights show it.

    The kernel tables are those of :class:`tracekit.reporting.comparison.ComparisonSide`. ``shared_pct`` is the
    percent of both runs' kernel time in kernels with the same op, precision and shapes. ``sharded`` states that one
    run has the shapes of whole layers while the other may split them over ranks; weights are then not compared.
    """
    if shared_pct >= MIN_SHARED_PCT or a.is_empty() or b.is_empty():
        return True
    if sharded or not (_has_shapes(a) and _has_shapes(b)):
        return min(_compute_common_ops_pct(a, b), _compute_common_ops_pct(b, a)) >= MIN_SHARED_PCT
    return compute_shared_weights_pct(a, b) >= MIN_SHARED_PCT


def compute_shared_weights_pct(a: pl.DataFrame, b: pl.DataFrame) -> float:
    """Compute the percent of GEMM and convolution launches that use the same weights in both runs, by shape.

    Args:
        a: Kernels of the first run.
        b: Kernels of the second run.
    """
    of_a, of_b = _list_weight_kernels(a), _list_weight_kernels(b)
    both = _collect_shapes(of_a) & _collect_shapes(of_b)
    in_a, in_b = _count_by_weights(of_a, both), _count_by_weights(of_b, both)
    return 100 * sum(min(in_a[weights], in_b[weights]) for weights in in_a if weights)


def _has_shapes(kernels: pl.DataFrame) -> bool:
    return kernels["shape"].is_not_null().any()


def _compute_common_ops_pct(kernels: pl.DataFrame, others: pl.DataFrame) -> float:
    """Compute the percent of the compute kernels' time whose op the other run has too."""
    computing = kernels.filter(pl.col("family") != "collective")
    common = computing.join(others, on=("family", "op"), how="semi", nulls_equal=True)
    all_us = float(computing["time_us"].sum())
    return 100 * float(common["time_us"].sum()) / all_us if all_us else 0.0


def _list_weight_kernels(kernels: pl.DataFrame) -> list[tuple[OperandShapes, float]]:
    """List the operand shapes of each GEMM or convolution, and its number of launches."""
    rows = kernels.filter(pl.col("family").is_in(WEIGHT_FAMILIES) & pl.col("shape").is_not_null())
    return [(_extract_matrices(json.loads(shape)), count) for shape, count in rows.select("shape", "count").iter_rows()]


def _extract_matrices(dims: Sequence[object]) -> OperandShapes:
    operands = (tuple(sizes) for sizes in dims if isinstance(sizes, list) and len(sizes) >= MIN_WEIGHT_DIMS)
    return frozenset(sizes for sizes in operands if all(isinstance(size, int) for size in sizes))


def _collect_shapes(products: Sequence[tuple[OperandShapes, float]]) -> OperandShapes:
    return frozenset[tuple[int, ...]]().union(*(operands for operands, _ in products))


def _count_by_weights(products: Sequence[tuple[OperandShapes, float]], both: OperandShapes) -> Counter[OperandShapes]:
    """Compute, for each set of operand shapes that both runs have, its fraction of all launches."""
    launches = sum(count for _, count in products)
    parts: Counter[OperandShapes] = Counter()
    for operands, count in products:
        parts[operands & both] += count / launches  # type: ignore[assignment] # of a counter of fractions
    return parts
