"""Count the work of linear attention's kernels: gated delta rules, Mamba-2, the short convolution before both.

Each head keeps a matrix, its state. A kernel of a prompt handles the tokens of a chunk together and hands the state
from chunk to chunk; one that decodes reads each sequence's state, changes it and writes it back. Engines keep states in
fp32.
"""

from __future__ import annotations

from typing import TypeVar

import polars as pl

from predictors.arrays import Floats

CHUNKS, STEP, CONVOLUTION = LINEAR_PARTS = "chunks", "step", "convolution"
"""The ``part`` of a kernel of the family 'linear_attention': all of a layer's kernels over the chunks of prompts, or
one token for each sequence, or the short convolution before both."""
CHUNK_TOKENS = 64
"""Tokens of a chunk of flash-linear-attention's delta rule, which engines copy (FlashInfer's as well)."""
STATE_BYTES, ITEM_BYTES = 4, 2
"""Of an element of a state, and of queries, keys, values and outputs."""

Numbers = TypeVar("Numbers", pl.Expr, Floats, float)


def count_state_elements(heads: Numbers, key_width: Numbers, value_width: Numbers) -> Numbers:
    """Count the elements of a sequence's states."""
    return heads * key_width * value_width


def count_scan_flops(
    tokens: Numbers, heads: Numbers, key_heads: Numbers, key_width: Numbers, value_width: Numbers
) -> Numbers:
    """Count the FLOPs of a delta rule in chunks: inside of one, and with its state.

    Inside of a chunk each token meets half of the others: their keys with keys and with queries, the inverse applied to
    keys and values, the output. The state is read twice and written once.
    """
    inside = (2 * key_heads * key_width + heads * (key_width + 2 * value_width)) * (CHUNK_TOKENS / 2)
    return 2 * tokens * (inside + 3 * count_state_elements(heads, key_width, value_width))


def count_scan_bytes(
    tokens: Numbers, sequences: Numbers, heads: Numbers, key_heads: Numbers, key_width: Numbers, value_width: Numbers
) -> Numbers:
    """Count the bytes of a delta rule: queries, keys, values and outputs, and each sequence's state twice."""
    moved = tokens * (2 * key_heads * key_width + 2 * heads * value_width) * ITEM_BYTES
    return moved + 2 * sequences * count_state_elements(heads, key_width, value_width) * STATE_BYTES


def count_convolution_bytes(tokens: Numbers, sequences: Numbers, channels: Numbers, taps: Numbers) -> Numbers:
    """Count the bytes of the short convolution: its input and output, and the last inputs of each sequence twice."""
    return ITEM_BYTES * channels * (2 * tokens + 2 * sequences * (taps - 1))
