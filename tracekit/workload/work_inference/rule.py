"""Rules on the work of kernels."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from tracekit.rules import Rule
from tracekit.trace import RankTrace


@dataclass(frozen=True, slots=True)
class WorkRule(Rule):
    """A rule that infers the work of kernels.

    Attributes:
        infer: Apply it to the kernel table of a rank, given what the rank recorded.
    """

    infer: Callable[[pl.DataFrame, RankTrace], pl.DataFrame]
