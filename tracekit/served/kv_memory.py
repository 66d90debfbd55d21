"""How many tokens an engine's KV cache holds beside the weights."""

from dataclasses import dataclass
from math import ceil

from predictors import Gpu
from tracekit.errors import TracekitError
from tracekit.models.llm import ModelConfig, TransformerLayer
from tracekit.served.model import ACTIVATION_BYTES

ENGINE_BYTES = 2**30
"""What the CUDA context, the graphs and NCCL's buffers take of a GPU, beside activations.

vLLM logs 0.5 to 1.5 GiB of graphs and memory that isn't PyTorch's on H100; a judgement within that.
"""
STATE_BYTES = 4
"""Of an element of linear attention's state, which engines keep in fp32."""

INDEX_SCALE_BYTES = 4
"""Of the scale of an indexer's key, whose elements are in fp8 whatever the cache is (vLLM, SGLang)."""


class ServingError(TracekitError):
    """A model can't be served as it is asked."""


@dataclass(frozen=True, slots=True)
class CacheMemory:
    """What an engine's memory on one GPU holds.

    Attributes:
        usable_bytes: The engine's share of the GPU's memory.
        weight_bytes: Weights on the GPU.
        working_bytes: Activations of the largest step, logits, graphs and buffers.
        token_bytes: A token of the longest-lived layers, all layers together.
        fixed_bytes: What each sequence needs at least, however long: states of linear attention.
        window_bytes: What windows hold of a sequence at most.
    """

    usable_bytes: float
    weight_bytes: float
    working_bytes: float
    token_bytes: float
    fixed_bytes: float
    window_bytes: float

    @property
    def cache_bytes(self) -> float:
        """What is left for the cache; negative where the weights alone are too large."""
        return self.usable_bytes - self.weight_bytes - self.working_bytes

    def compute_sequence_bytes(self, tokens: int) -> float:
        """Return what a sequence of a length takes at most."""
        return self.fixed_bytes + self.window_bytes + self.token_bytes * tokens

    def count_sequences(self, tokens: int) -> int:
        """Count the sequences of a length that fit at once."""
        return max(int(self.cache_bytes // self.compute_sequence_bytes(tokens)), 0)

    def count_pages(self, page_tokens: int, tokens: int) -> int:
        """Count the pages of a cache for sequences of a length, what a sequence needs beside its tokens shared out."""
        page_bytes = self.compute_sequence_bytes(tokens) / max(ceil(tokens / page_tokens), 1)
        return max(int(self.cache_bytes // page_bytes), 0)


def compute_cache_memory(
    model: ModelConfig,
    gpu: Gpu,
    *,
    ranks: int,
    replicas: int = 1,
    stages: int = 1,
    weight_bytes: float,
    cache_item_bytes: float,
    share: float,
    max_tokens: int,
    max_sequences: int,
) -> CacheMemory:
    """Compute what an engine's memory on a GPU holds.

    Args:
        model: The model.
        gpu: The GPU.
        ranks: GPUs that tensor parallelism splits a layer over.
        replicas: Groups of them whose tokens each GPU gathers for its experts.
        stages: Groups of GPUs that have a part of the layers each.
        weight_bytes: Weights on each.
        cache_item_bytes: Of an element of the cache.
        share: Fraction of the GPU's memory that the engine takes.
        max_tokens: New tokens of a step at most.
        max_sequences: Sequences of a step at most.
    """
    widest = max(_count_widest(layer) for layer in model.layers) / ranks
    logits = max_sequences * model.vocabulary * STATE_BYTES / ranks
    gathered = 2 * replicas * model.hidden if replicas > 1 else 0
    working = max_tokens * (widest + 4 * model.hidden + gathered) * ACTIVATION_BYTES + logits + ENGINE_BYTES
    full = [one for one in model.layers if one.linear is None and not one.window]
    windowed = [one for one in model.layers if one.linear is None and one.window]
    states = [one for one in model.layers if one.linear is not None]
    indexed = sum(one.indexer.width + INDEX_SCALE_BYTES for one in full if one.indexer)
    return CacheMemory(
        usable_bytes=share * gpu.memory_bytes,
        weight_bytes=weight_bytes,
        working_bytes=working,
        token_bytes=(sum(count_cached(one, ranks) for one in full) * cache_item_bytes + indexed) / stages,
        fixed_bytes=sum(_count_state(one) for one in states) * STATE_BYTES / ranks / stages,
        window_bytes=sum(count_cached(one, ranks) * (one.window or 0) for one in windowed) * cache_item_bytes / stages,
    )


def _count_widest(layer: TransformerLayer) -> float:
    """Count the elements of a token's widest activations in a layer."""
    projected = (layer.heads + 2 * layer.kv_heads) * layer.head_dim
    inner = max(layer.mlp_width * max(layer.top_k, 1), layer.shared_width)
    return max(projected, inner * (3 if layer.is_gated else 2))


def count_cached(layer: TransformerLayer, ranks: int = 1) -> float:
    """Count the elements that a rank's cache holds of a token in a layer."""
    if layer.latent is not None:
        return layer.latent.cached
    return 2 * max(layer.kv_heads / ranks, 1) * layer.head_dim


def _count_state(layer: TransformerLayer) -> float:
    assert layer.linear is not None
    return layer.linear.heads * layer.linear.key_width * layer.linear.value_width
