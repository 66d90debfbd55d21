"""Whether two runs' kernels are those of one program, also in another batch, precision or layout."""

import json
from collections import Counter
from collections.abc import Sequence

import polars as pl

MOSTLY_PCT = 50.0
"""Percent from which kernels are taken to be of one program."""

PRODUCTS = ("gemm", "conv")
"""Families whose kernels work on weights, of shapes that another batch and another precision leave alone."""

LEAST_SIDES = 2
"""Sides that a matrix of weights has."""

Operands = frozenset[tuple[int, ...]]


def one_program(a: pl.DataFrame, b: pl.DataFrame, shared_pct: float, cut: bool) -> bool:
    """Whether two runs' kernels are those of one program, as far as ops, shapes and weights tell.

    Args:
        a: Kernels of the first run, as :class:`tracekit.reporting.comparison.Side` has them.
        b: Of the second one.
        shared_pct: Percent of both runs' kernel time that is of kernels with the same op, precision and shapes.
        cut: Whether the shapes of one run are those of whole layers, and the other one may share them out over ranks.
    """
    if shared_pct >= MOSTLY_PCT or a.is_empty() or b.is_empty():
        return True
    if cut or not (_has_shapes(a) and _has_shapes(b)):
        return min(_of_common_ops(a, b), _of_common_ops(b, a)) >= MOSTLY_PCT
    return same_weights(a, b) >= MOSTLY_PCT


def same_weights(a: pl.DataFrame, b: pl.DataFrame) -> float:
    """Percent of the launches of GEMMs and convolutions that go to the same weights in both runs, by their shapes.

    Args:
        a: Kernels of the first run.
        b: Of the second one.
    """
    of_a, of_b = _products(a), _products(b)
    both = _known(of_a) & _known(of_b)
    in_a, in_b = _by_weights(of_a, both), _by_weights(of_b, both)
    return 100 * sum(min(in_a[weights], in_b[weights]) for weights in in_a if weights)


def _has_shapes(kernels: pl.DataFrame) -> bool:
    return kernels["shape"].is_not_null().any()


def _of_common_ops(kernels: pl.DataFrame, others: pl.DataFrame) -> float:
    """Percent of the time of computing kernels whose op the other run has too."""
    computing = kernels.filter(pl.col("family") != "collective")
    common = computing.join(others, on=("family", "op"), how="semi", nulls_equal=True)
    all_us = float(computing["time_us"].sum())
    return 100 * float(common["time_us"].sum()) / all_us if all_us else 0.0


def _products(kernels: pl.DataFrame) -> list[tuple[Operands, float]]:
    """The matrices of each product, and its launches."""
    rows = kernels.filter(pl.col("family").is_in(PRODUCTS) & pl.col("shape").is_not_null())
    return [(_matrices(json.loads(shape)), count) for shape, count in rows.select("shape", "count").iter_rows()]


def _matrices(dims: Sequence[object]) -> Operands:
    operands = (tuple(sizes) for sizes in dims if isinstance(sizes, list) and len(sizes) >= LEAST_SIDES)
    return frozenset(sizes for sizes in operands if all(isinstance(size, int) for size in sizes))


def _known(products: Sequence[tuple[Operands, float]]) -> Operands:
    return frozenset[tuple[int, ...]]().union(*(operands for operands, _ in products))


def _by_weights(products: Sequence[tuple[Operands, float]], both: Operands) -> Counter[Operands]:
    """The part of all launches that each set of matrices in both runs has."""
    launches = sum(count for _, count in products)
    parts: Counter[Operands] = Counter()
    for operands, count in products:
        parts[operands & both] += count / launches  # type: ignore[assignment] # of a counter of fractions
    return parts
