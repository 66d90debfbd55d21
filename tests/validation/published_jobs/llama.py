"""Llama 2 in plain PyTorch, as foundation-model-stack/fms-fsdp trains it in bf16: FlashAttention 2, all else by ops.

Of a compiled one the ops between products are one kernel each, which goes through as many bytes.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.validation.published_jobs.mpt import recompute

VOCABULARY, EPSILON = 32000, 1e-5
COMPILED = "-compiled"


class Size(NamedTuple):
    """How large a model is."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int


SIZES = {
    "llama-7b": Size(32, 4096, 11008, 32, 32),
    "llama-13b": Size(40, 5120, 13824, 40, 40),
    "llama-34b": Size(48, 8192, 22016, 64, 8),
    "llama-70b": Size(80, 8192, 28672, 64, 8),
}


class Norm(nn.Module):
    """By the root of the mean square, in single precision."""

    def __init__(self, width: int, *, compiled: bool) -> None:
        super().__init__()
        self.weight, self.compiled = nn.Parameter(torch.empty(width)), compiled

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized states."""
        if self.compiled:
            return functional.layer_norm(x, self.weight.shape, self.weight, None, EPSILON)
        single = x.float()
        single = single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + EPSILON)
        return self.weight * single.type_as(x)


class Block(nn.Module):
    """Causal self-attention and a gated MLP, each behind a norm and beside a residual."""

    def __init__(self, size: Size, *, compiled: bool) -> None:
        super().__init__()
        self.head, self.compiled = size.width // size.heads, compiled
        self.repeated, of_keys = size.heads // size.kv_heads, size.kv_heads * self.head
        self.attention_norm, self.mlp_norm = (Norm(size.width, compiled=compiled) for _ in range(2))
        self.query, self.output = (nn.Linear(size.width, size.width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(size.width, of_keys, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(size.width, size.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, hidden: Tensor, turns: Tensor) -> Tensor:
        """Return the hidden states after this layer."""
        x = self.attention_norm(hidden)
        query, key, value = (of(x).unflatten(-1, (-1, self.head)) for of in (self.query, self.key, self.value))
        heads = self._rotate(query, turns), *map(self._repeat_heads, (self._rotate(key, turns), value))
        mixed = torch.ops.aten._scaled_dot_product_flash_attention(*(x.transpose(1, 2) for x in heads), 0.0, True)[0]
        hidden = hidden + self.output(mixed.transpose(1, 2).flatten(2))
        x = self.mlp_norm(hidden)
        return hidden + self.down(self._apply_gate(self.gate(x), self.up(x)))

    def _rotate(self, x: Tensor, turns: Tensor) -> Tensor:
        """Rotate pairs of elements by angles that grow with the position."""
        if self.compiled:
            return torch.neg(x)
        pairs = x.float().unflatten(-1, (-1, 2))
        return turns.mul(pairs.unsqueeze(-2)).sum(-1).flatten(3).type_as(x)

    def _repeat_heads(self, x: Tensor) -> Tensor:
        """Repeat keys or values for each head of the queries."""
        return x.repeat_interleave(self.repeated, 2) if self.repeated > 1 else x

    def _apply_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return (gate if self.compiled else functional.silu(gate)) * up


class Llama(nn.Module):
    """Tokens to the logits of all positions, one after the other.

    Args:
        name: A model's name and how long its sequences are, such as ``llama-7b/4096``.
        recomputes: Whether activations are worked out again on the way back.
    """

    def __init__(self, name: str, *, recomputes: bool) -> None:
        super().__init__()
        model, _, length = name.partition("/")
        size, compiled = SIZES[model.removesuffix(COMPILED)], model.endswith(COMPILED)
        self.tokens, self.recomputes, self.head = int(length), recomputes, size.width // size.heads
        self.words = nn.Embedding(VOCABULARY, size.width)
        self.blocks = nn.ModuleList(Block(size, compiled=compiled) for _ in range(size.layers))
        self.norm = Norm(size.width, compiled=compiled)
        self.logits = nn.Linear(size.width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return [batch * tokens, vocabulary]."""
        hidden = self.words(tokens)
        turns = torch.empty(self.tokens, 1, self.head // 2, 2, 2, device=tokens.device)
        for block in self.blocks:
            hidden = recompute(block, hidden, turns) if self.recomputes else block(hidden, turns)
        return self.logits(self.norm(hidden).flatten(0, 1))
