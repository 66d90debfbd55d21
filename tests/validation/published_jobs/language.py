"""BERT for question answering in plain PyTorch, as NVIDIA's DeepLearningExamples run it: attention in products."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, POSITIONS, DROPPED = 30528, 512, 0.1


def drop_out(x: Tensor) -> Tensor:
    """Apply dropout by CUDA's own kernel for it."""
    return torch.native_dropout(x, DROPPED, train=True)[0]


class Block(nn.Module):
    """Self-attention and an MLP, each with a residual and a norm behind it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.projection, self.attention_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down, self.norm = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Tokens come first: [tokens, batch, width]."""
        tokens, batch, width = hidden.shape
        heads = (of(hidden).view(tokens, batch * self.heads, -1) for of in (self.query, self.key, self.value))
        query, key, value = (head.transpose(0, 1) for head in heads)
        scores = (
            torch.bmm(query, key.transpose(1, 2)).view(batch, self.heads, tokens, tokens) / (width // self.heads) ** 0.5
            + mask
        )
        chosen = drop_out(functional.softmax(scores, -1)).view(-1, tokens, tokens)
        mixed = torch.bmm(chosen, value).transpose(0, 1).contiguous().view(tokens, batch, width)
        hidden = self.attention_norm(drop_out(self.projection(mixed)) + hidden)
        return self.norm(drop_out(self.down(functional.gelu(self.up(hidden)))) + hidden)


class Bert(nn.Module):
    """BERT with a head that tells where an answer begins and ends."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(POSITIONS, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return [tokens, batch, 2]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.norm(self.words(tokens) + self.positions(places)).transpose(0, 1).contiguous()
        mask = torch.zeros(tokens.shape[0], 1, 1, tokens.shape[1], dtype=hidden.dtype, device=tokens.device)
        for block in self.blocks:
            hidden = block(hidden, mask)
        return self.head(hidden)


MODELS = {"bert_base": partial(Bert, 768, 12, 12), "bert_large": partial(Bert, 1024, 24, 16)}
