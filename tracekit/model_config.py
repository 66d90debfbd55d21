"""A model's sizes, as its ``config.json`` gives them (Hugging Face's format, which serving engines read too)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tracekit.bounds import MAX_MODEL_CONFIG_BYTES, MAX_MODEL_LAYERS, MAX_MODEL_SIZE
from tracekit.errors import ModelConfigError
from tracekit.messages import model_configs as messages

REQUIRED_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads")
EXPERT_COUNT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")
UNGATED_MODEL_TYPES = frozenset({"bloom", "falcon", "gpt_bigcode", "gpt_neox", "opt", "phi", "starcoder2"})
"""Models whose MLP has one matrix into its inner width; those of all others have two, a gate and an input."""
LATENT_ATTENTION_KEY = "kv_lora_rank"
OTHER_MIXERS = ("linear_attention", "mamba", "recurrent", "conv")
"""Types of layers without softmax attention."""


@dataclass(frozen=True, slots=True)
class TransformerLayer:
    """One layer of a decoder.

    Attributes:
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of a head.
        window: Keys that a query sees at most; None without a limit.
        mlp_width: Inner width of the MLP, of one expert if there are several.
        is_gated: Whether the MLP multiplies its inner activations by a gate.
        experts: Experts, of which a router chooses ``top_k`` for each token; 0 without a router.
        top_k: Experts of a token.
        shared_width: Inner width of the expert that all tokens pass through; 0 without one.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int | None
    mlp_width: int
    is_gated: bool
    experts: int = 0
    top_k: int = 0
    shared_width: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer.

    Attributes:
        name: File that it was read from.
        architecture: Name of the model's class or type.
        hidden: Width of the activations between layers.
        vocabulary: Rows of the output matrix.
        layers: The layers in order.
    """

    name: str
    architecture: str
    hidden: int
    vocabulary: int
    layers: tuple[TransformerLayer, ...]


def is_model_config(head: bytes) -> bool:
    """Return whether a file is a model's configuration, by the beginning of its text."""
    return b'"traceEvents"' not in head and b'"hidden_size"' in head and b'"num_hidden_layers"' in head


def read_model_config(path: str | Path) -> ModelConfig:
    """Read a ``config.json``.

    Args:
        path: The file.

    Raises:
        ModelConfigError: As :func:`parse_model_config`; or the file can't be read, or is too large.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_MODEL_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelConfigError(messages.CONFIG_UNREADABLE(path=str(path), reason=reason)) from error
    return parse_model_config(text, str(path))


def parse_model_config(text: bytes, name: str) -> ModelConfig:
    """Parse a ``config.json``.

    Args:
        text: The file's content.
        name: Its name in messages.

    Raises:
        ModelConfigError: It isn't a configuration, a size is missing or impossible, or the model has layers other than
            softmax attention with an MLP or experts.
    """
    if len(text) > MAX_MODEL_CONFIG_BYTES:
        raise ModelConfigError(messages.CONFIG_TOO_LARGE(path=name, limit_bytes=MAX_MODEL_CONFIG_BYTES))
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ModelConfigError(messages.CONFIG_NOT_JSON(path=name)) from error
    if isinstance(given, dict) and isinstance(given.get("text_config"), dict):
        given = given | given["text_config"]
    if not isinstance(given, dict):
        raise ModelConfigError(messages.CONFIG_NOT_JSON(path=name))
    return _ConfigReader(given, name).read()


class _ConfigReader:
    def __init__(self, given: Mapping[str, Any], name: str) -> None:
        self._given = given
        self._name = name
        classes = given.get("architectures")
        self._architecture = str(classes[0] if isinstance(classes, list) and classes else given.get("model_type", "?"))

    def read(self) -> ModelConfig:
        hidden, count, _ = (self._get_size(key) for key in REQUIRED_KEYS)
        if count > MAX_MODEL_LAYERS:
            raise ModelConfigError(messages.CONFIG_SIZE(path=self._name, key="num_hidden_layers", value=str(count)))
        types = self._given.get("layer_types")
        types = [str(each) for each in types] if isinstance(types, list) else []
        strange = [each for each in types if any(other in each for other in OTHER_MIXERS)]
        if self._given.get(LATENT_ATTENTION_KEY) or strange:
            layers = strange[0] if strange else "multi-head latent attention"
            raise ModelConfigError(
                messages.CONFIG_LAYERS(path=self._name, architecture=self._architecture, layers=layers)
            )
        return ModelConfig(
            name=self._name,
            architecture=self._architecture,
            hidden=hidden,
            vocabulary=self._get_size("vocab_size", default=0),
            layers=tuple(self._build_layer(i, types) for i in range(count)),
        )

    def _build_layer(self, index: int, types: list[str]) -> TransformerLayer:
        heads = self._get_size("num_attention_heads")
        experts = self._count_experts(index)
        dense = self._get_size("intermediate_size", default=4 * self._get_size("hidden_size"))
        width = self._get_size("moe_intermediate_size", default=dense)
        top_k = self._get_size("num_experts_per_tok") if experts else 0
        if top_k > experts:
            raise ModelConfigError(messages.CONFIG_SIZE(path=self._name, key="num_experts_per_tok", value=str(top_k)))
        shared = self._get_size("shared_expert_intermediate_size", default=0)
        return TransformerLayer(
            heads=heads,
            kv_heads=self._get_size("num_key_value_heads", default=heads),
            head_dim=self._get_size("head_dim", default=self._get_size("hidden_size") // heads),
            window=self._find_window(index, types),
            mlp_width=width if experts else dense,
            is_gated=str(self._given.get("model_type")) not in UNGATED_MODEL_TYPES,
            experts=experts,
            top_k=top_k,
            shared_width=(shared or self._get_size("n_shared_experts", default=0) * width) if experts else 0,
        )

    def _count_experts(self, index: int) -> int:
        """Count the experts of a layer; some models have ordinary MLPs in their first layers, or in every other one."""
        counts = [self._get_size(key, default=0) for key in EXPERT_COUNT_KEYS]
        listed = self._given.get("mlp_only_layers")
        every = self._get_size("decoder_sparse_step", default=1)
        dense = index < self._get_size("first_k_dense_replace", default=0) or (index + 1) % max(every, 1) != 0
        return 0 if dense or (isinstance(listed, list) and index in listed) else max(counts)

    def _find_window(self, index: int, types: list[str]) -> int | None:
        window = self._get_size("sliding_window", default=0) or None
        if index < len(types):
            return window if "sliding" in types[index] else None
        return None if self._given.get("use_sliding_window") is False else window

    def _get_size(self, key: str, default: int | None = None) -> int:
        value = self._given.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise ModelConfigError(messages.CONFIG_KEY_MISSING(path=self._name, key=key))
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_MODEL_SIZE:
            raise ModelConfigError(messages.CONFIG_SIZE(path=self._name, key=key, value=repr(value)))
        if default is None and not value:
            raise ModelConfigError(messages.CONFIG_SIZE(path=self._name, key=key, value="0"))
        return value
