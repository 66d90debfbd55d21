"""GPT-2 and BERT of their published sizes, and a Llama-style model: training, prefill and decode."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from sample_traces.workloads.step import Step, graphed, infer, train


@dataclass(frozen=True)
class Shape:
    """The size of a language model and of its input."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    batch: int
    tokens: int


GPT2 = Shape(layers=12, width=768, heads=12, kv_heads=12, hidden=3072, vocabulary=50304, batch=8, tokens=1024)
BERT = Shape(layers=12, width=768, heads=12, kv_heads=12, hidden=3072, vocabulary=30522, batch=32, tokens=128)
# Llama-3-8B with four of its layers.
LLAMA = Shape(layers=4, width=4096, heads=32, kv_heads=8, hidden=14336, vocabulary=128256, batch=1, tokens=2048)
SMALL = Shape(layers=2, width=32, heads=4, kv_heads=2, hidden=64, vocabulary=64, batch=2, tokens=8)


class Attention(nn.Module):
    """Attention with grouped queries; reads and extends a cache of keys and values if there is one."""

    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.size = shape.width // shape.heads
        self.causal = causal
        self.groups = (shape.heads, shape.kv_heads, shape.kv_heads)
        self.qkv = nn.Linear(shape.width, sum(self.groups) * self.size, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, hidden: Tensor, cache: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return what each token takes from those before it."""
        heads = self.qkv(hidden).unflatten(-1, (-1, self.size)).transpose(1, 2)
        query, key, value = heads.split(self.groups, dim=1)
        if cache is not None:
            key, value = (torch.cat(pair, dim=2) for pair in zip(cache, (key, value), strict=True))
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.causal and cache is None, enable_gqa=self.groups[0] != self.groups[1]
        )
        return self.output(mixed.transpose(1, 2).flatten(2))


class GeluMlp(nn.Module):
    """Two layers with GELU between."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(shape.width, shape.hidden), nn.Linear(shape.hidden, shape.width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the layer's output."""
        return self.down(functional.gelu(self.up(hidden)))


class GatedMlp(nn.Module):
    """SwiGLU (Shazeer, 2020)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_up = nn.Linear(shape.width, 2 * shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the layer's output."""
        gate, up = self.gate_up(hidden).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class Layer(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual."""

    def __init__(self, shape: Shape, *, gated: bool, causal: bool) -> None:
        super().__init__()
        norm = nn.RMSNorm if gated else nn.LayerNorm
        self.attention_norm, self.mlp_norm = norm(shape.width), norm(shape.width)
        self.attention = Attention(shape, causal)
        self.mlp = GatedMlp(shape) if gated else GeluMlp(shape)

    def forward(self, hidden: Tensor, cache: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return the hidden states after this layer."""
        hidden = hidden + self.attention(self.attention_norm(hidden), cache)
        return hidden + self.mlp(self.mlp_norm(hidden))


class LanguageModel(nn.Module):
    """Tokens to logits."""

    def __init__(self, shape: Shape, *, gated: bool = False, causal: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape, gated=gated, causal=causal) for _ in range(shape.layers))
        self.norm = (nn.RMSNorm if gated else nn.LayerNorm)(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor, cache: list[tuple[Tensor, Tensor]] | None = None) -> Tensor:
        """Return the logits of every position."""
        hidden = self.embedding(tokens)
        for number, layer in enumerate(self.layers):
            hidden = layer(hidden, cache[number] if cache else None)
        return self.head(self.norm(hidden))


def gpt2_train(device: str, small: bool) -> Step:
    """Train GPT-2 in bf16."""
    return _train(SMALL if small else GPT2, device, gated=False)


def gpt2_train_compiled(device: str, small: bool) -> Step:
    """Train GPT-2 in bf16, compiled."""
    return _train(SMALL if small else GPT2, device, gated=False, compiled=not small)


def gpt2_train_batch16(device: str, small: bool) -> Step:
    """Train GPT-2 in bf16 on twice the batch."""
    shape = SMALL if small else GPT2
    return _train(replace(shape, batch=2 * shape.batch), device, gated=False)


def gpt2_train_reading(device: str, small: bool) -> Step:
    """Train GPT-2 in bf16, which reads its loss back before the backward pass."""
    return _train(SMALL if small else GPT2, device, gated=False, reads_loss=True)


def llama_train(device: str, small: bool) -> Step:
    """Train four layers of Llama-3-8B in bf16."""
    return _train(SMALL if small else LLAMA, device, gated=True)


def llama_prefill(device: str, small: bool) -> Step:
    """Prefill one prompt."""
    model, tokens = _model_and_tokens(SMALL if small else LLAMA, device, gated=True)
    return infer(lambda: model(tokens)[:, -1])


def llama_decode(device: str, small: bool) -> Step:
    """Decode one token for each of 32 prompts."""
    return infer(_decoder(device, small))


def llama_decode_graph(device: str, small: bool) -> Step:
    """Decode the same as one CUDA graph."""
    forward = _decoder(device, small)

    def step() -> None:
        with torch.no_grad():
            forward()

    return graphed(step, device)


def bert_inference(device: str, small: bool) -> Step:
    """Run BERT-base on 32 sentences."""
    model, tokens = _model_and_tokens(SMALL if small else BERT, device, gated=False, causal=False)
    return infer(lambda: model(tokens))


WORKLOADS = {
    "gpt2_train": gpt2_train,
    "gpt2_train_compiled": gpt2_train_compiled,
    "gpt2_train_batch16": gpt2_train_batch16,
    "gpt2_train_reading": gpt2_train_reading,
    "llama_train": llama_train,
    "llama_prefill": llama_prefill,
    "llama_decode": llama_decode,
    "llama_decode_graph": llama_decode_graph,
    "bert_inference": bert_inference,
}


def _train(shape: Shape, device: str, *, gated: bool, compiled: bool = False, reads_loss: bool = False) -> Step:
    model, tokens = _model_and_tokens(shape, device, gated=gated)
    forward = torch.compile(model) if compiled else model

    def loss() -> Tensor:
        return functional.cross_entropy(forward(tokens).flatten(0, 1).float(), tokens.flatten())

    return train(model.parameters(), loss, torch.enable_grad(), reads_loss=reads_loss)


def _decoder(device: str, small: bool) -> Callable[[], Tensor]:
    shape = replace(SMALL if small else LLAMA, batch=2 if small else 32)
    model, tokens = _model_and_tokens(shape, device, gated=True)
    size = (shape.batch, shape.kv_heads, shape.tokens, shape.width // shape.heads)
    cache = [tuple(torch.randn(2, *size, device=device, dtype=torch.bfloat16)) for _ in range(shape.layers)]
    last = tokens[:, -1:].contiguous()
    return lambda: model(last, cache)


def _model_and_tokens(shape: Shape, device: str, *, gated: bool, causal: bool = True) -> tuple[LanguageModel, Tensor]:
    torch.manual_seed(0)
    with torch.device(device):
        model = LanguageModel(shape, gated=gated, causal=causal).to(torch.bfloat16)
    return model, torch.randint(shape.vocabulary, (shape.batch, shape.tokens)).to(device)
