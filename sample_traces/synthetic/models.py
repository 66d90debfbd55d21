"""The transformer steps that the sample traces show, and how they are profiled."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint

Step = Callable[[], None]


@dataclass(frozen=True)
class Shape:
    """The size of the model and of its input."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    tokens: int


TRAIN = Shape(layers=4, width=1024, heads=16, vocabulary=8192, batch=8, tokens=384)
INFERENCE = Shape(layers=24, width=1024, heads=16, vocabulary=8192, batch=1, tokens=64)


class Block(nn.Module):
    """Causal self-attention and an MLP, both with a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.projection = nn.Linear(shape.width, shape.width)
        self.mlp_norm = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the hidden states after this layer."""
        qkv = self.qkv(self.attention_norm(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.projection(mixed.transpose(1, 2).flatten(2))
        return hidden + self.down(functional.gelu(self.up(self.mlp_norm(hidden))))


class Transformer(nn.Module):
    """A GPT-like language model."""

    def __init__(self, shape: Shape, *, recomputes: bool = False) -> None:
        super().__init__()
        self.recomputes = recomputes
        self.token_embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.position_embedding = nn.Embedding(shape.tokens, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of every position."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.token_embedding(tokens) + self.position_embedding(positions)
        if not self.recomputes:
            return self.head(self.norm(self.blocks(hidden)))
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False)
        return self.head(self.norm(hidden))


def training_step(device: str) -> Step:
    """Return the sample's training step."""
    return train(TRAIN, device)


def train(shape: Shape, device: str, *, recomputes: bool = False) -> Step:
    """Return a training step in bf16; it reads the loss back before the optimizer runs.

    Args:
        shape: Of the model.
        device: That it runs on.
        recomputes: Whether the backward pass works out the layers' activations again.
    """
    model, tokens = _model_and_tokens(shape, device, recomputes=recomputes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        logits = model(tokens).float()
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    return step


def inference_step(device: str) -> Step:
    """Return a step that computes one prompt and reads the next token back."""
    model, tokens = _model_and_tokens(INFERENCE, device)

    @torch.inference_mode()
    def step() -> None:
        model(tokens)[0, -1].argmax().item()

    return step


STEPS = {"train": training_step, "inference": inference_step}


def record(step: Step, activities: Iterable[ProfilerActivity], path: Path) -> None:
    """Write the profiler's trace of three steps after another."""
    plan = schedule(wait=0, warmup=1, active=3, repeat=1)
    with profile(activities=activities, record_shapes=True, schedule=plan) as profiler:
        for _ in range(1 + 3):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(path))


def _model_and_tokens(shape: Shape, device: str, *, recomputes: bool = False) -> tuple[Transformer, Tensor]:
    torch.manual_seed(0)
    model = Transformer(shape, recomputes=recomputes).to(device, torch.bfloat16)
    return model, torch.randint(shape.vocabulary, (shape.batch, shape.tokens)).to(device)
