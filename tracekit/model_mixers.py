"""What mixes the tokens of a layer in place of attention over cached keys and values: a latent cache, or a state."""

from dataclasses import dataclass

DELTA_RULE_CHUNK = 64
"""Tokens of a chunk in flash-linear-attention's gated delta rule, which engines copy."""
DELTA_RULE_FLOPS = 7
"""FLOPs per element of the state and token, one token after another: its decay (1), what it recalls of the key (2), the
correction (2), the output (2)."""
STATE_SPACE_FLOPS = 5
"""The same of Mamba-2: the decay (1), the input's part (2), the output (2)."""


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: the cache holds a compressed vector of keys and values, the same for all heads.

    Attributes:
        query_rank: Width of the compressed query; 0 if the query isn't compressed.
        kv_rank: Width of the compressed keys and values.
        plain: Width of a head's query and key without position.
        rotated: Width of their part with position; the key's is the same for all heads.
        value: Width of a head's value.
    """

    query_rank: int
    kv_rank: int
    plain: int
    rotated: int
    value: int

    @property
    def cached(self) -> int:
        """Elements that the cache holds of a token."""
        return self.kv_rank + self.rotated


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Linear attention with a matrix for each head as its state: the gated delta rule, or Mamba-2.

    Attributes:
        is_delta_rule: Whether it is the gated delta rule; else Mamba-2.
        key_heads: Heads of query and key; the groups of Mamba-2.
        heads: Heads of the value, each with a state.
        key_width: Width of query and key; the state's size in Mamba-2.
        value_width: Width of a head of the value.
        taps: Tokens that the convolution before it sees.
        chunk: Tokens that are handled at once in a prefill.
    """

    is_delta_rule: bool
    key_heads: int
    heads: int
    key_width: int
    value_width: int
    taps: int
    chunk: int
