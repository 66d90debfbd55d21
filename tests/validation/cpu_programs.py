"""Six programs that run on a CPU, each with its batch and, of language models, its sequence."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Program = tuple[nn.Module, *tuple[Any, ...]]


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int, *, inner: int = 0, groups: int = 1) -> None:
        super().__init__()
        outputs, inner = 4 * width, inner or width
        self.convolutions = nn.Sequential(
            *_convolve(inputs, inner, 1), nn.ReLU(), *_convolve(inner, inner, 3, stride, groups), nn.ReLU()
        )
        self.last = nn.Sequential(*_convolve(inner, outputs, 1))
        changes = stride > 1 or inputs != outputs
        self.side = nn.Sequential(*_convolve(inputs, outputs, 1, stride)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, and add what came in."""
        return functional.relu(self.last(self.convolutions(x)) + self.side(x))


def _convolve(inputs: int, outputs: int, window: int, stride: int = 1, groups: int = 1) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, window, stride, window // 2, groups=groups, bias=False)
    return convolution, nn.BatchNorm2d(outputs)


class BasicBlock(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(*_convolve(inputs, width, 3, stride), nn.ReLU(), *_convolve(width, width, 3))
        changes = stride > 1 or inputs != width
        self.side = nn.Sequential(*_convolve(inputs, width, 1, stride)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, and add what came in."""
        return functional.relu(self.first(x) + self.side(x))


class Layer(nn.Module):
    """A transformer's layer."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Attend, then mix each token."""
        batch, tokens, width = x.shape
        heads = self.project(self.first(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(found.transpose(1, 2).reshape(batch, tokens, width))
        mixed: Tensor = x + self.mix(self.second(x))
        return mixed


class Language(nn.Module):
    """A language model: BERT's layers with a classifier, or GPT-2's with words."""

    def __init__(self, layers: int, width: int, heads: int, words: int, *, causal: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.layers = nn.Sequential(*(Layer(width, heads, causal=causal) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, words if causal else 2, bias=not causal)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score of each word, or class, of each token."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        found: Tensor = self.head(self.layers(self.words(tokens) + self.places(places)))
        return found


class Vision(nn.Module):
    """A vision transformer."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, width, 16, 16), nn.Linear(width, 1000)
        self.layers = nn.Sequential(*(Layer(width, heads, causal=False) for _ in range(layers)), nn.LayerNorm(width))

    def forward(self, images: Tensor) -> Tensor:
        """Return a score of each class."""
        found: Tensor = self.head(self.layers(self.patches(images).flatten(2).transpose(1, 2)).mean(1))
        return found


class Recommender(nn.Module):
    """A DLRM."""

    def __init__(self, tables: int = 8, rows: int = 200_000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = _stack(13, 512, 256, width)
        self.top = _stack(width + (tables + 1) * tables // 2, 1024, 1024, 512, 1)

    def forward(self, dense: Tensor, *bags: Tensor) -> Tensor:
        """Look rows up, multiply them with one another, and score."""
        x = self.bottom(dense)
        features = torch.stack([x, *(table(bag) for table, bag in zip(self.tables, bags, strict=True))], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        left, right = torch.tril_indices(products.shape[1], products.shape[1], -1).unbind()
        found: Tensor = self.top(torch.cat([x, products[:, left, right]], 1))
        return found


def _stack(*widths: int) -> nn.Sequential:
    return nn.Sequential(*(part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())))


class Recurrent(nn.Module):
    """A language model of LSTM layers."""

    def __init__(self, width: int = 512, words: int = 8000) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.layers = nn.LSTM(width, width, 2, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score of each word."""
        found: Tensor = self.head(self.layers(self.words(tokens))[0])
        return found


def build_resnet50(batch: int = 1) -> Program:
    """Build ResNet-50."""
    return _build_resnet(Bottleneck, (3, 4, 6, 3), 4, batch)


def _build_resnet(
    block: Callable[[int, int, int], nn.Module], counts: tuple[int, ...], wider: int, batch: int
) -> Program:
    blocks, inputs = [], 64
    for stage, count in enumerate(counts):
        width = 64 << stage
        for place in range(count):
            blocks.append(block(inputs, width, 2 if place == 0 and stage else 1))
            inputs = wider * width
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))
    return nn.Sequential(*stem, *blocks, *head), torch.randn(batch, 3, 224, 224)


def build_resnet18(batch: int = 1) -> Program:
    """Build ResNet-18."""
    return _build_resnet(BasicBlock, (2, 2, 2, 2), 1, batch)


def build_resnext101(batch: int = 1) -> Program:
    """Build ResNeXt-101 32x8d."""

    def build_block(inputs: int, width: int, stride: int) -> nn.Module:
        return Bottleneck(inputs, width, stride, inner=4 * width, groups=32)

    return _build_resnet(build_block, (3, 4, 23, 3), 4, batch)


def build_bert_base(batch: int = 1) -> Program:
    """Build BERT base, whose size RoBERTa's is, with sequences of 128 tokens."""
    return Language(12, 768, 12, 30522, causal=False), torch.randint(0, 30522, (batch, 128))


def build_distilbert(batch: int = 1) -> Program:
    """Build DistilBERT: half of BERT base's layers."""
    return build_bert(batch)


def build_bert_large(batch: int = 1, tokens: int = 128) -> Program:
    """Build BERT large."""
    return Language(24, 1024, 16, 30522, causal=False), torch.randint(0, 30522, (batch, tokens))


def build_longer_bert_large(batch: int = 1) -> Program:
    """Build BERT large with sequences of 384 tokens."""
    return build_bert_large(batch, 384)


def build_bert(batch: int = 2, tokens: int = 128) -> Program:
    """Build six of BERT's layers."""
    return Language(6, 768, 12, 30522, causal=False), torch.randint(0, 30522, (batch, tokens))


def build_gpt2(batch: int = 1, tokens: int = 128) -> Program:
    """Build six of GPT-2's layers, with fewer words."""
    return Language(6, 768, 12, 16000, causal=True), torch.randint(0, 16000, (batch, tokens))


def build_vit(batch: int = 1) -> Program:
    """Build a small vision transformer."""
    return Vision(8, 384, 6), torch.randn(batch, 3, 224, 224)


def build_dlrm(batch: int = 256) -> Program:
    """Build a DLRM of eight tables, with twenty look-ups in each."""
    bags: list[Any] = [torch.randint(0, 200_000, (batch, 20)) for _ in range(8)]
    return (Recommender(), torch.randn(batch, 13), *bags)


def build_lstm(batch: int = 8, tokens: int = 32) -> Program:
    """Build two LSTM layers."""
    return Recurrent(), torch.randint(0, 8000, (batch, tokens))


def build_longer_bert(batch: int = 2) -> Program:
    """Build the same with twice the tokens; likewise the others."""
    return build_bert(batch, 256)


def build_longer_gpt2(batch: int = 1) -> Program:
    """Build GPT-2's layers with twice the tokens."""
    return build_gpt2(batch, 256)


def build_longer_lstm(batch: int = 8) -> Program:
    """Build the LSTM layers with twice the tokens."""
    return build_lstm(batch, 64)


PROGRAMS: dict[str, tuple[Callable[..., Program], int, Callable[..., Program] | None]] = {
    "ResNet-50": (build_resnet50, 1, None),
    "BERT": (build_bert, 2, build_longer_bert),
    "GPT-2": (build_gpt2, 1, build_longer_gpt2),
    "ViT": (build_vit, 1, None),
    "DLRM": (build_dlrm, 256, None),
    "LSTM": (build_lstm, 8, build_longer_lstm),
}
"""What builds each program, its batch, and what builds it with longer sequences."""

PUBLISHED: dict[str, Callable[..., Program]] = {
    "ResNet-18": build_resnet18,
    "ResNet-50": build_resnet50,
    "ResNeXt-101 32x8d": build_resnext101,
    "BERT base": build_bert_base,
    "RoBERTa base": build_bert_base,
    "DistilBERT": build_distilbert,
    "BERT large": build_bert_large,
    "BERT large 384": build_longer_bert_large,
}
"""What builds the programs of published figures."""
