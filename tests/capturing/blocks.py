"""A block of a transformer on tensors without data."""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, TOKENS, BATCH = 256, 128, 4


class Block(nn.Module):
    """Attention and an MLP behind norms."""

    def __init__(self, heads: int = 4, kv_heads: int = 4) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, WIDTH // heads
        self.norm, self.rms = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, (heads + 2 * kv_heads) * self.size)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the hidden states behind it."""
        heads = self.qkv(self.norm(x)).unflatten(-1, (-1, self.size)).transpose(1, 2)
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=mask is None, enable_gqa=self.heads != self.kv_heads
        )
        x = x + mixed.transpose(1, 2).flatten(2)
        return x + self.down(functional.gelu(self.up(self.rms(x))))


def build(dtype: torch.dtype = torch.bfloat16, **options: int) -> tuple[nn.Module, Tensor]:
    """Build a block and its input, both without data."""
    with torch.device("meta"):
        return Block(**options).to(dtype), torch.empty(BATCH, TOKENS, WIDTH, dtype=dtype)
