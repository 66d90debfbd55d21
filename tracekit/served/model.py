"""A served model: its sizes, and the formats of its weights and its cache; and the engine that serves it."""

from collections.abc import Mapping
from dataclasses import dataclass

from predictors.kernels import DTYPE_BYTES
from tracekit.models.llm import ModelConfig, TransformerLayer

ACTIVATION_BYTES = DTYPE_BYTES["bf16"]
WEIGHT_BYTES: Mapping[str, float] = {one: DTYPE_BYTES[one] for one in ("bf16", "fp16", "fp8", "fp8_block", "nvfp4")}
"""Bytes of a weight by the precision of the products, scales included."""
CACHE_BYTES: Mapping[str, float] = {one: DTYPE_BYTES[one] for one in ("bf16", "fp16", "fp8")}
QUANTISED = ("fp8", "fp8_block", "nvfp4")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as it is served.

    Attributes:
        config: Its sizes.
        precision: Format of the weights' products: a key of :data:`WEIGHT_BYTES`.
        cache_type: Format of keys and values: a key of :data:`CACHE_BYTES`.
    """

    config: ModelConfig
    precision: str = "bf16"
    cache_type: str = "bf16"

    def count_weight_bytes(self, ranks: int, expert_ranks: int = 1) -> float:
        """Count the bytes of weights on each of the GPUs that share the layers, and of those that share experts."""
        of_layers = self._count_layer_weights()
        of_experts = sum(_count_expert_weights(one, self.config.hidden) for one in self.config.layers if one.experts)
        ends = (self.count_parameters() - of_layers) * ACTIVATION_BYTES
        shared = of_experts / max(ranks, expert_ranks) + (of_layers - of_experts) / ranks
        return shared * WEIGHT_BYTES[self.precision] + ends / ranks

    def count_parameters(self) -> float:
        """Count the weights, norms left out."""
        return self._count_layer_weights() + 2 * self.config.vocabulary * self.config.hidden

    def _count_layer_weights(self) -> float:
        return sum(_count_weights(layer, self.config.hidden) for layer in self.config.layers)


@dataclass(frozen=True, slots=True)
class ServingEngine:
    """A serving engine.

    Attributes:
        framework: vllm, sglang or trtllm.
        version: Its release; None where nobody tells.
        ranks: GPUs that share each layer (tensor parallelism).
        expert_ranks: GPUs that share the experts, each with whole ones (expert parallelism): as many as ``ranks``, or
            a multiple, of which each ``ranks`` have requests of their own (attention data parallel); 1 where experts
            are split as other layers are.
    """

    framework: str
    version: str | None = None
    ranks: int = 1
    expert_ranks: int = 1

    @property
    def replicas(self) -> int:
        """Groups of GPUs with requests of their own, which exchange the tokens of their experts."""
        return max(self.expert_ranks // self.ranks, 1)

    @property
    def world_size(self) -> int:
        """GPUs in all."""
        return self.ranks * self.replicas

    @property
    def name(self) -> str:
        """Its name, with the release where that is known."""
        return self.framework if self.version is None else f"{self.framework}=={self.version}"


def _count_weights(layer: TransformerLayer, hidden: int) -> float:
    """Count a layer's weights, norms left out."""
    shared = hidden * (3 if layer.is_gated else 2) * layer.shared_width
    return _count_mixer_weights(layer, hidden) + _count_expert_weights(layer, hidden) + shared + hidden * layer.experts


def _count_expert_weights(layer: TransformerLayer, hidden: int) -> float:
    """Count the weights of a layer's experts, or of its MLP."""
    return hidden * (3 if layer.is_gated else 2) * layer.mlp_width * max(layer.experts, 1)


def _count_mixer_weights(layer: TransformerLayer, hidden: int) -> float:
    """Count the weights of a layer's attention."""
    latent, heads = layer.latent, layer.heads
    if latent is None:
        return hidden * (heads * (3 if layer.is_output_gated else 2) + 2 * layer.kv_heads) * layer.head_dim
    query = heads * (latent.plain + latent.rotated)
    queries = latent.query_rank * (hidden + query) if latent.query_rank else hidden * query
    keys = hidden * latent.cached + latent.kv_rank * heads * (latent.plain + latent.value)
    return queries + keys + heads * latent.value * hidden
