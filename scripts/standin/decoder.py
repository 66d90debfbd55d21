"""MPT in plain PyTorch, as mosaicml/llm-foundry trains it in bf16: FlashAttention, learned positions."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY = 50368


class Size(NamedTuple):
    """Of a model."""

    layers: int
    width: int
    heads: int


@dataclass(frozen=True)
class Length:
    """How its steps are run: sequences of so many tokens, activations worked out again on the way back or kept."""

    tokens: int
    recomputes: bool


class Block(nn.Module):
    """Causal self-attention and an MLP, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Returns the hidden states after this layer."""
        parts = self.qkv(self.attention_norm(hidden)).chunk(3, dim=-1)
        heads = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]
        mixed = torch.ops.aten._scaled_dot_product_flash_attention(*heads, 0.0, True)[0]
        hidden = hidden + self.output(mixed.transpose(1, 2).flatten(2))
        return hidden + self.down(functional.gelu(self.up(self.mlp_norm(hidden))))


class Decoder(nn.Module):
    """Tokens to logits."""

    def __init__(self, size: Size, length: Length) -> None:
        super().__init__()
        self.length = length
        self.words, self.places = nn.Embedding(VOCABULARY, size.width), nn.Embedding(length.tokens, size.width)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns [batch, tokens, vocabulary]."""
        hidden = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            hidden = self._again(block, hidden) if self.length.recomputes else block(hidden)
        return functional.linear(self.norm(hidden), self.words.weight)

    @staticmethod
    def _again(block: nn.Module, hidden: Tensor) -> Tensor:
        return checkpoint(block, hidden, use_reentrant=False, preserve_rng_state=False)


SIZES = {
    "mpt-125m": Size(12, 768, 12),
    "mpt-350m": Size(24, 1024, 16),
    "mpt-760m": Size(24, 1536, 12),
    "mpt-1b": Size(24, 2048, 16),
    "mpt-3b": Size(32, 2560, 20),
    "mpt-7b": Size(32, 4096, 32),
    "mpt-13b": Size(40, 5120, 40),
    "mpt-30b": Size(48, 7168, 56),
    "mpt-70b": Size(80, 8192, 64),
}
