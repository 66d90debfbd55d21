"""How many experts of a mixture (MoE) a batch of tokens hits, which no trace records.

If the router chose evenly, ``t`` tokens would miss an expert with probability ``(1 - top_k / experts) ** t``::

    64 experts, 8 a token:  1 token hits 8 experts, 4 tokens 27, 16 tokens 56, 64 tokens 64

Real routers prefer some experts. At least, a batch is taken to hit as many as a quarter of its tokens would if spread
evenly; at most, its tokens share none.
"""

import math
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
    return experts * (1 - (1 - top_k / experts) ** tokens)


def spread_tokens(tokens: int, experts: int, top_k: int) -> Columns:
    """Spread tokens over experts: a GEMM for each expert that is hit.

    Args:
        tokens: Tokens of the batch, at least one.
        experts: Experts on the rank.
        top_k: Experts of a token.

    Returns:
        ``batch`` (experts that are hit), ``m`` (tokens of each), bounds on ``batch`` as factors, and the arguments.
    """
    hit = max(round(count_hit_experts(tokens, experts, top_k)), 1)
    least = count_hit_experts(max(tokens * LEAST_TOKENS_FRACTION, 1), experts, top_k)
    pairs = tokens * top_k
    return {
        "batch": hit,
        "m": math.ceil(pairs / hit),
        "work_low": min(least / hit, 1.0),
        "work_high": max(min(experts, pairs) / hit, 1.0),
        "tokens": tokens,
        "experts": experts,
        "top_k": top_k,
    }
