"""How many experts of a mixture (MoE) a batch of tokens hits, which no trace records.

If the router chose evenly, ``t`` tokens would miss an expert with probability ``(1 - top_k / experts) ** t``::

    64 experts, 8 a token:  1 token hits 8 experts, 4 tokens 27, 16 tokens 56, 64 tokens 64

Real routers prefer some experts. At least, a batch is taken to hit as many as a quarter of its tokens would if spread
evenly; at most, its tokens share none.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from tracekit.workload.ops.memory_traffic import Columns

LEAST_TOKENS_FRACTION = 0.25
"""Part of the tokens that hits as many experts, spread evenly, as all of them at least do: an assumption."""

Size = TypeVar("Size", float, pl.Expr)


def count_hit_experts(tokens: Size, experts: Size, top_k: Size) -> Size:
    """Count the experts that some tokens hit if the router chooses evenly.

    Examples:
        >>> round(count_hit_experts(16, 64, 8))
        56
    """
    hit: Size = experts * (1 - (1 - top_k / experts) ** tokens)
    return hit


@dataclass(frozen=True, slots=True)
class TokenSpread:
    """Tokens spread over experts: a GEMM for each expert that is hit.

    Attributes:
        tokens: Tokens of the batch, at least one.
        experts: Experts on the rank.
        top_k: Experts of a token, at least one.
    """

    tokens: int
    experts: int
    top_k: int

    @property
    def hit(self) -> int:
        """Experts that are hit."""
        return max(round(count_hit_experts(self.tokens, self.experts, self.top_k)), 1)

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds on the experts that are hit, as factors on ``hit``."""
        least = count_hit_experts(max(self.tokens * LEAST_TOKENS_FRACTION, 1), self.experts, self.top_k)
        most = min(self.experts, self.tokens * self.top_k)
        return min(least / self.hit, 1.0), max(most / self.hit, 1.0)

    def build_columns(self, n: int, k: int) -> Columns:
        """Build the columns of a GEMM per expert that is hit, each with a weight of n x k."""
        low, high = self.bounds
        return {
            "batch": self.hit,
            "m": math.ceil(self.tokens * self.top_k / self.hit),
            "n": n,
            "k": k,
            "work_low": low,
            "work_high": high,
            "tokens": self.tokens,
            "experts": self.experts,
            "top_k": self.top_k,
        }
