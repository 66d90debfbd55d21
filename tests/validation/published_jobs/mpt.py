"""MPT in plain PyTorch, as mosaicml/llm-foundry trains it in bf16: FlashAttention, learned positions."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY = 50368
SIZES = {
    "mpt-125m": (12, 768, 12),
    "mpt-350m": (24, 1024, 16),
    "mpt-760m": (24, 1536, 12),
    "mpt-1b": (24, 2048, 16),
    "mpt-3b": (32, 2560, 20),
    "mpt-7b": (32, 4096, 32),
    "mpt-13b": (40, 5120, 40),
    "mpt-30b": (48, 7168, 56),
}
"""Layers, width, heads."""


class Block(nn.Module):
    """Causal self-attention and an MLP, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the hidden states after this layer."""
        parts = self.qkv(self.attention_norm(hidden)).chunk(3, dim=-1)
        heads = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]
        mixed = torch.ops.aten._scaled_dot_product_flash_attention(*heads, 0.0, True)[0]
        hidden = hidden + self.output(mixed.transpose(1, 2).flatten(2))
        return hidden + self.down(functional.gelu(self.up(self.mlp_norm(hidden))))


class Decoder(nn.Module):
    """Tokens to the logits of all positions, one after the other.

    Args:
        name: A model's name and how long its sequences are, such as ``mpt-7b/2048``.
        recomputes: Whether activations are worked out again on the way back.
    """

    def __init__(self, name: str, *, recomputes: bool) -> None:
        super().__init__()
        size, _, length = name.partition("/")
        layers, width, heads = SIZES[size]
        self.tokens, self.recomputes = int(length), recomputes
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(self.tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return [batch * tokens, vocabulary]."""
        hidden = self.words(tokens) + self.places(torch.arange(self.tokens, device=tokens.device))
        for block in self.blocks:
            hidden = recompute(block, hidden) if self.recomputes else block(hidden)
        return functional.linear(self.norm(hidden).flatten(0, 1), self.words.weight)


def recompute(block: nn.Module, *inputs: Tensor) -> Tensor:
    """Run a block whose activations are computed again in the backward pass."""
    return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=False)
