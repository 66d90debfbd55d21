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

    def count_weight_bytes(self, ranks: int) -> float:
        """Count the bytes of weights on each of the GPUs that share the layers."""
        of_layers = self._count_layer_weights()
        ends = (self.count_parameters() - of_layers) * ACTIVATION_BYTES
        return (of_layers * WEIGHT_BYTES[self.precision] + ends) / ranks

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
    """

    framework: str
    version: str | None = None
    ranks: int = 1

    @property
    def name(self) -> str:
        """Its name, with the release where that is known."""
        return self.framework if self.version is None else f"{self.framework}=={self.version}"


def _count_weights(layer: TransformerLayer, hidden: int) -> float:
    """Count a layer's weights, norms left out."""
    matrices = 3 if layer.is_gated else 2
    routed = layer.mlp_width * max(layer.experts, 1) + layer.shared_width
    return _count_mixer_weights(layer, hidden) + hidden * (matrices * routed + layer.experts)


def _count_mixer_weights(layer: TransformerLayer, hidden: int) -> float:
    """Count the weights of a layer's attention."""
    latent, heads = layer.latent, layer.heads
    if latent is None:
        return hidden * (heads * (3 if layer.is_output_gated else 2) + 2 * layer.kv_heads) * layer.head_dim
    query = heads * (latent.plain + latent.rotated)
    queries = latent.query_rank * (hidden + query) if latent.query_rank else hidden * query
    keys = hidden * latent.cached + latent.kv_rank * heads * (latent.plain + latent.value)
    return queries + keys + heads * latent.value * hidden
