"""Rules on the work of kernels, and how they fill columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.rules import Rule
from tracekit.trace import RankTrace


@dataclass(frozen=True, slots=True)
class WorkRule(Rule):
    """A rule that infers the work of kernels.

    Attributes:
        infer: Apply it to a rank's kernel table (``schema.KERNELS``), whose ``work_from`` is null where the work isn't
            known, given what the rank recorded.
    """

    infer: Callable[[pl.DataFrame, RankTrace], pl.DataFrame]


def override_columns(rows: pl.Expr, values: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    """Build the columns that ``values`` names: with these values on ``rows``, unchanged on all others."""
    return [pl.when(rows).then(value).otherwise(column).alias(column) for column, value in values.items()]
