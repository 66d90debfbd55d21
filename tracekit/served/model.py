"""A served model: its sizes, and the formats of its weights and its cache; and the engine that serves it."""

from collections.abc import Mapping
from dataclasses import dataclass

from predictors.kernels import DTYPE_BYTES
from tracekit.models.llm import ModelConfig, TransformerLayer
from tracekit.workload.parameters import WEIGHT_BYTES as STORED_BYTES

ACTIVATION_BYTES = DTYPE_BYTES["bf16"]
QUANTISED = ("fp8", "fp8_block", "nvfp4")
"""Formats of weights and of the inputs of their products, which are cast."""
STORED = ("int4", "mxfp4")
"""Formats of weights that products in 16 bits unpack (w4a16): AWQ's and GPTQ's, and gpt-oss's."""
WEIGHT_BYTES: Mapping[str, float] = {
    one: STORED_BYTES[one] for one in ("bf16", "fp16", "fp8", "fp8_block", "nvfp4", "int4", "mxfp4")
}
"""Bytes of a weight by the precision of the products, scales included."""
CACHE_AS: Mapping[str, str] = {
    **{one: one for one in ("bf16", "fp16", "fp8", "nvfp4")},
    "fp8_block": "mxfp8",
    "int4": "mxfp4",
}
"""Formats of keys and values, and those of kernels with as many bytes. fp8_block has a scale of 4 bytes for 128 numbers
(vLLM's ``fp8_ds_mla``), int4 a scale and a zero of 2 bytes each for those of a head (LMDeploy's ``quant_policy=4``),
which is 128 as in most models, nvfp4 a byte for 16 (TensorRT-LLM)."""
CACHE_BYTES: Mapping[str, float] = {one: DTYPE_BYTES[kernels] for one, kernels in CACHE_AS.items()}
"""Bytes of an element of the cache, scales included."""
UNMEASURED_CACHES = ("fp8_block", "nvfp4", "int4")
"""Formats whose reading by attention nobody measured: bytes alone bound it."""
NORMAL, LOW_LATENCY = "normal", "low_latency"
"""DeepEP's kernels: a token goes once to each rank that has one of its experts, or once to each of its experts."""
BACKENDS: Mapping[str, tuple[str, str]] = {
    "deepep": (NORMAL, LOW_LATENCY),
    "deepep_high_throughput": (NORMAL, NORMAL),
    "deepep_low_latency": (LOW_LATENCY, LOW_LATENCY),
}
"""Modes of DeepEP for steps with prompts and for steps that only decode, by what exchanges the tokens of experts: the
first is SGLang's ``--moe-a2a-backend`` (``--deepep-mode auto``), the others are vLLM's ``--all2all-backend``."""
COLLECTIVES = "allgather_reducescatter"
"""What exchanges them by default, in vLLM's words."""
PARTS = ATTENTION, DENSE, SHARED, EXPERTS = "attention", "dense", "shared", "experts"
"""Parts of layers, of which a checkpoint may leave some in 16 bits: attention's matrices, those of MLPs, of the expert
that all tokens pass through, and of the routed ones."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as it is served.

    Attributes:
        config: Its sizes.
        precision: Format of the weights' products: a key of :data:`WEIGHT_BYTES`.
        cache_type: Format of keys and values: a key of :data:`CACHE_BYTES`.
        plain: Parts of its layers in 16 bits, of :data:`PARTS`.
    """

    config: ModelConfig
    precision: str = "bf16"
    cache_type: str = "bf16"
    plain: frozenset[str] = frozenset()

    def count_weight_bytes(self, ranks: int, expert_ranks: int = 1) -> float:
        """Count the bytes of weights on each of the GPUs that share the layers, and of those that share experts."""
        quantised = {part: 0.0 if part in self.plain else count for part, count in self._count_by_part().items()}
        of_experts = quantised.pop(EXPERTS)
        plain = self.count_parameters() - of_experts - sum(quantised.values())
        stored = of_experts / max(ranks, expert_ranks) + sum(quantised.values()) / ranks
        return stored * WEIGHT_BYTES[self.precision] + plain * ACTIVATION_BYTES / ranks

    def count_parameters(self) -> float:
        """Count the weights, norms left out."""
        routers = self.config.hidden * sum(layer.experts for layer in self.config.layers)
        return sum(self._count_by_part().values()) + routers + 2 * self.config.vocabulary * self.config.hidden

    def _count_by_part(self) -> dict[str, float]:
        """Count the weights of each part of all layers."""
        found, hidden = dict.fromkeys(PARTS, 0.0), self.config.hidden
        for layer in self.config.layers:
            column = hidden * (3 if layer.is_gated else 2)
            found[ATTENTION] += _count_mixer_weights(layer, hidden)
            found[SHARED] += column * layer.shared_width
            found[EXPERTS if layer.experts else DENSE] += column * layer.mlp_width * max(layer.experts, 1)
        return found


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
        stages: Groups of GPUs that have a part of the layers each (pipeline parallelism), with as many batches at once.
        backend: What exchanges the tokens of experts: :data:`COLLECTIVES`, or a key of :data:`BACKENDS`.
    """

    framework: str
    version: str | None = None
    ranks: int = 1
    expert_ranks: int = 1
    stages: int = 1
    backend: str = COLLECTIVES

    @property
    def replicas(self) -> int:
        """Groups of GPUs with requests of their own, which exchange the tokens of their experts."""
        return max(self.expert_ranks // self.ranks, 1)

    @property
    def batches(self) -> int:
        """Batches under way at once, each of requests of its own."""
        return self.replicas * self.stages

    @property
    def world_size(self) -> int:
        """GPUs in all."""
        return self.ranks * self.batches

    @property
    def name(self) -> str:
        """Its name, with the release where that is known."""
        return self.framework if self.version is None else f"{self.framework}=={self.version}"


def _count_mixer_weights(layer: TransformerLayer, hidden: int) -> float:
    """Count the weights of a layer's attention."""
    latent, heads = layer.latent, layer.heads
    if latent is None:
        return hidden * (heads * (3 if layer.is_output_gated else 2) + 2 * layer.kv_heads) * layer.head_dim
    query = heads * (latent.plain + latent.rotated)
    queries = latent.query_rank * (hidden + query) if latent.query_rank else hidden * query
    keys = hidden * latent.cached + latent.kv_rank * heads * (latent.plain + latent.value)
    indexer = layer.indexer
    scored = indexer.heads * indexer.width * (latent.query_rank or hidden) if indexer else 0
    scored += hidden * (indexer.width + indexer.heads) if indexer else 0
    return queries + keys + heads * latent.value * hidden + scored
