"""How long the steps of a serving engine take, from the kernels that it launches for a model of attention and MLPs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from predictors import Gpu
from predictors import predict as predict_kernels
from predictors.hardware import derive_hardware
from predictors.kernel_identity import parse_release
from predictors.kernels import DTYPE_BYTES
from predictors.weights_file import load_weights
from tracekit.arrays import Floats
from tracekit.comm import Cluster
from tracekit.comm.predict import predict as predict_collectives
from tracekit.errors import ModelConfigError
from tracekit.messages import serving as messages
from tracekit.models.llm import ModelConfig, TransformerLayer
from tracekit.prediction.part import ENGINE_HALF_WIDTH

ACTIVATION_BYTES = DTYPE_BYTES["bf16"]
WEIGHT_BYTES: Mapping[str, float] = {one: DTYPE_BYTES[one] for one in ("bf16", "fp16", "fp8", "fp8_block", "nvfp4")}
"""Bytes of a weight by the precision of the products, scales included."""
CACHE_BYTES: Mapping[str, float] = {one: DTYPE_BYTES[one] for one in ("bf16", "fp16", "fp8")}
QUANTISED = ("fp8", "fp8_block", "nvfp4")
PRODUCTS_LAW = "gemm half"
"""Law of products in 16 bits, which each engine was measured with."""
HOST_US: Mapping[str, tuple[float, float, float]] = {
    "vllm": (500.0, 2000.0, 4000.0),
    "sglang": (500.0, 1500.0, 3000.0),
    "trtllm": (500.0, 1500.0, 3000.0),
}
"""CPU time of a step that the GPU's work hides: low, likely, high. A judgement; vLLM 0.11 was seen to take 30 ms on a
B200 machine (ML.ENERGY's leaderboard), which lies outside."""
HOST_SEQUENCE_US: Mapping[str, float] = {"vllm": 20.0, "sglang": 12.0, "trtllm": 12.0}
"""The same for each sequence of the step, likewise a judgement."""


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


@dataclass(frozen=True, slots=True)
class StepShapes:
    """What steps work on; arrays of one length.

    Attributes:
        new_tokens: Tokens of prompts.
        prompts: Prompts that these belong to, each alike; 0 without any.
        sequences: Sequences that decode, one token each.
        contexts: Mean tokens in the cache of each of them.
    """

    new_tokens: Floats
    prompts: Floats
    sequences: Floats
    contexts: Floats


@dataclass(frozen=True, slots=True)
class EngineStepTimes:
    """How long steps take; each array has rows of low, likely and high.

    Attributes:
        gpu_us: Time of the GPU's work.
        host_us: Time of the engine's CPU, beside it.
        power_w: Mean power of a GPU's board while it works; no interval.
    """

    gpu_us: Floats
    host_us: Floats
    power_w: Floats

    @property
    def step_us(self) -> Floats:
        """The longer of both: engines prepare a step while the GPU works on the one before."""
        return np.maximum(self.gpu_us, self.host_us)


def predict_engine_steps(
    model: ServedModel, engine: ServingEngine, target: Cluster, steps: StepShapes
) -> EngineStepTimes:
    """Predict how long steps take.

    Args:
        model: What is served.
        engine: What serves it.
        target: GPUs that it runs on; the first of them are used.
        steps: The steps.

    Raises:
        ModelConfigError: The model has layers of which an engine's kernels aren't known here.
    """
    refuse_unknown_layers(model.config)
    engine = replace(engine, version=find_fitted_version(engine, target.gpu))
    parts = [_predict_part(part, engine, target) for part in _list_kernels(model, engine, steps)]
    likely = np.sum([one.time_us for one in parts], axis=0)
    halves = [np.sqrt(np.sum([(one.ends_us[at] - one.time_us) ** 2 for one in parts], axis=0)) for at in (0, 1)]
    spread = np.exp(ENGINE_HALF_WIDTH)
    gpu_us = np.stack([np.maximum(likely - halves[0], likely / 2) / spread, likely, (likely + halves[1]) * spread])
    low, usual, high = HOST_US[engine.framework]
    each = HOST_SEQUENCE_US[engine.framework] * (steps.sequences + steps.prompts)
    host_us = np.stack([low + each / 4, usual + each, high + 1.5 * each])
    energy_uj = np.sum([one.energy_uj for one in parts], axis=0)
    return EngineStepTimes(gpu_us, host_us, energy_uj / np.maximum(likely, 1e-9))


def find_fitted_version(engine: ServingEngine, gpu: Gpu) -> str | None:
    """Return the engine's version if its products were measured; of others only the engine is known."""
    release = None if engine.version is None else parse_release(engine.version)
    fitted = load_weights().get_law(PRODUCTS_LAW).find_kernels(derive_hardware(gpu))
    known = release is not None and fitted.has_release("gemm", engine.framework, release)
    return engine.version if known else None


def refuse_unknown_layers(config: ModelConfig) -> None:
    """Refuse models with layers of other kinds than attention with MLPs or experts.

    Raises:
        ModelConfigError: There are some.
    """
    for name, found in (
        ("latent attention", any(one.latent for one in config.layers)),
        ("linear attention", any(one.linear for one in config.layers)),
    ):
        if found:
            raise ModelConfigError(messages.SERVING_LAYERS(path=config.name, layers=name))


_Row = dict[str, Floats | float | str | bool]


@dataclass(frozen=True, slots=True)
class _Part:
    """Kernels of one kind: a row for each step, and how often each step launches it."""

    rows: _Row
    calls: float
    is_collective: bool = False


@dataclass(frozen=True, slots=True)
class _PartTimes:
    time_us: Floats
    ends_us: tuple[Floats, Floats]
    energy_uj: Floats


def _predict_part(part: _Part, engine: ServingEngine, target: Cluster) -> _PartTimes:
    """Predict one kind of kernels for all steps: each distinct shape once; a size of 0 takes no time."""
    length = max(np.size(value) for value in part.rows.values())
    table = pl.DataFrame({name: np.broadcast_to(value, length) for name, value in part.rows.items()})
    sizes = [name for name in ("m", "batch", "tokens", "bytes") if name in table.columns]
    runs = pl.all_horizontal(pl.col(name) > 0 for name in sizes)
    distinct = table.unique(maintain_order=True).filter(runs)
    if part.is_collective:
        found = predict_collectives(distinct, target).with_columns(power_w=pl.lit(target.gpu.tdp_w * 0.5))
        found = found["time_us", "low_us", "high_us", "power_w"]
    else:
        told = distinct.with_columns(framework=pl.lit(engine.framework), version=pl.lit(engine.version), in_job=True)
        found = predict_kernels(told, target.gpu)["time_us", "low_us", "high_us", "power_w"]
    joined = table.join(
        pl.concat([distinct, found], how="horizontal"), on=table.columns, how="left", maintain_order="left"
    )
    time, low, high, power = (
        joined[name].fill_null(0.0).to_numpy() * (1.0 if name == "power_w" else part.calls) for name in found.columns
    )
    return _PartTimes(time, (low, high), time * power)


def _list_kernels(model: ServedModel, engine: ServingEngine, steps: StepShapes) -> Iterator[_Part]:
    """Yield the kernels of steps: products fused as engines fuse them, paged attention, all-reduces of their own."""
    config, ranks = model.config, engine.ranks
    tokens = np.maximum(steps.new_tokens + steps.sequences, 1.0)
    sampled = np.maximum(steps.prompts + steps.sequences, 1.0)
    width = ACTIVATION_BYTES * config.hidden * tokens
    layers = len(config.layers)
    yield _Part({"family": "embedding", "dtype": "bf16", "bytes": 2 * width}, 1)
    yield _Part(
        {"family": "norm", "dtype": "bf16", "bytes": 4 * width, "rows": tokens, "cols": config.hidden}, 2 * layers + 1
    )
    if ranks > 1:
        shared: _Row = {"collective": "all_reduce", "bytes": width, "ranks": ranks, "dtype": "bf16", "custom": True}
        yield _Part(shared, 2 * layers, is_collective=True)
    for layer, count in _count_alike(config):
        yield from _list_attention(model, layer, ranks, steps, count)
        yield from _list_mlp(model, layer, ranks, tokens, count)
    head: _Row = {"family": "gemm", "dtype": "bf16", "m": sampled, "n": config.vocabulary / ranks, "k": config.hidden}
    yield _Part(head, 1)
    yield _Part({"family": "softmax", "dtype": "fp32", "bytes": 3 * 4 * sampled * config.vocabulary}, 1)


def _count_alike(config: ModelConfig) -> list[tuple[TransformerLayer, int]]:
    """Count the layers of each kind."""
    return [(layer, config.layers.count(layer)) for layer in dict.fromkeys(config.layers)]


def _list_attention(
    model: ServedModel, layer: TransformerLayer, ranks: int, steps: StepShapes, count: int
) -> Iterator[_Part]:
    tokens = np.maximum(steps.new_tokens + steps.sequences, 1.0)
    heads, kv_heads = layer.heads / ranks, max(layer.kv_heads / ranks, 1)
    hidden = model.config.hidden
    joined = (heads * (2 if layer.is_output_gated else 1) + 2 * kv_heads) * layer.head_dim
    yield from _list_product(model, tokens, joined, hidden, count)
    moved = 2 * ACTIVATION_BYTES * tokens * joined
    yield _Part({"family": "elementwise", "dtype": "bf16", "bytes": moved}, 2 * count)
    shape: _Row = {
        "family": "attention",
        "dtype": "bf16",
        "kv_dtype": model.cache_type,
        "heads": heads,
        "kv_heads": kv_heads,
    }
    shape |= {"head_dim": float(layer.head_dim), "causal": True, "window": float(layer.window or 0), "paged": True}
    decoded: _Row = {"batch": steps.sequences, "q_len": 1.0, "kv_len": np.maximum(steps.contexts, 1.0)}
    yield _Part(shape | decoded, count)
    each = np.rint(steps.new_tokens / np.maximum(steps.prompts, 1.0))
    yield _Part(
        shape | {"batch": steps.prompts, "q_len": np.maximum(each, 1.0), "kv_len": np.maximum(each, 1.0)}, count
    )
    yield from _list_product(model, tokens, hidden, heads * layer.head_dim, count)


def _list_mlp(model: ServedModel, layer: TransformerLayer, ranks: int, tokens: Floats, count: int) -> Iterator[_Part]:
    hidden, inner = model.config.hidden, layer.mlp_width / ranks
    if layer.experts:
        yield _Part({"family": "gemm", "dtype": "bf16", "m": tokens, "n": layer.experts, "k": hidden}, count)
        routed: _Row = {
            "family": "moe",
            "dtype": model.precision,
            "tokens": tokens,
            "hidden": hidden,
            "inter": layer.mlp_width,
        }
        yield _Part(routed | {"topk": layer.top_k, "experts": layer.experts, "tp": ranks}, count)
        inner = layer.shared_width / ranks
    if inner:
        yield from _list_product(model, tokens, inner * (2 if layer.is_gated else 1), hidden, count)
        moved = (3 if layer.is_gated else 2) * ACTIVATION_BYTES * tokens * inner
        yield _Part({"family": "elementwise", "dtype": "bf16", "bytes": moved}, count)
        yield from _list_product(model, tokens, hidden, inner, count)


def _list_product(model: ServedModel, m: Floats, n: float, k: float, count: int) -> Iterator[_Part]:
    """Yield a product with weights, and the kernel that quantises its input."""
    yield _Part({"family": "gemm", "dtype": model.precision, "m": m, "n": float(n), "k": float(k)}, count)
    if model.precision in QUANTISED:
        moved = m * k * (ACTIVATION_BYTES + WEIGHT_BYTES[model.precision])
        yield _Part({"family": "quantise", "dtype": "bf16", "bytes": moved}, count)


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
