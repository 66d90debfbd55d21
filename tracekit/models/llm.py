"""A language model's sizes by its ``config.json`` (Hugging Face's format, which serving engines read too)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from tracekit.bounds import MAX_MODEL_CONFIG_BYTES, MAX_MODEL_LAYERS, MAX_MODEL_SIZE
from tracekit.errors import ModelConfigError
from tracekit.messages import models as messages

DELTA_RULE_CHUNK = 64
"""Tokens of a chunk in flash-linear-attention's gated delta rule, which engines copy."""
DELTA_RULE_FLOPS = 7
"""FLOPs per element of the state and token, one token after another: its decay (1), what it recalls of the key (2), the
correction (2), the output (2)."""
STATE_SPACE_FLOPS = 5
"""The same of Mamba-2: the decay (1), the input's part (2), the output (2)."""


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: the cache holds a compressed vector of keys and values, the same for all heads.

    Attributes:
        query_rank: Width of the compressed query; 0 if the query isn't compressed.
        kv_rank: Width of the compressed keys and values.
        plain: Width of a head's query and key without position.
        rotated: Width of their part with position; the key's is the same for all heads.
        value: Width of a head's value.
    """

    query_rank: int
    kv_rank: int
    plain: int
    rotated: int
    value: int

    @property
    def cached(self) -> int:
        """Elements that the cache holds of a token."""
        return self.kv_rank + self.rotated


@dataclass(frozen=True, slots=True)
class Indexer:
    """What selects the keys of sparse attention, by scores of small queries and keys, as DeepSeek-V3.2 does.

    Attributes:
        heads: Heads of its queries; all ranks have all.
        width: Width of a head and of its one key.
        selected: Keys that each query attends to.
    """

    heads: int
    width: int
    selected: int


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Linear attention with a matrix for each head as its state: the gated delta rule, or Mamba-2.

    Attributes:
        is_delta_rule: Whether it is the gated delta rule; else Mamba-2.
        key_heads: Heads of query and key; the groups of Mamba-2.
        heads: Heads of the value, each with a state.
        key_width: Width of query and key; the state's size in Mamba-2.
        value_width: Width of a head of the value.
        taps: Tokens that the convolution before it sees.
        chunk: Tokens that are handled at once in a prefill.
    """

    is_delta_rule: bool
    key_heads: int
    heads: int
    key_width: int
    value_width: int
    taps: int
    chunk: int


REQUIRED_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads")
EXPERT_COUNT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")
UNGATED_MODEL_TYPES = frozenset(
    {"bloom", "falcon", "gpt_bigcode", "gpt_neox", "nemotron_h", "opt", "phi", "starcoder2"}
)
"""Models whose MLP has one matrix into its inner width; those of all others have two, a gate and an input."""
GATED_ATTENTION_MODEL_TYPES = ("qwen3_next", "qwen3_5")
"""Models whose queries come with a gate of the same width for attention's output."""
GATED_SHARED_MODEL_TYPES = ("qwen2_moe", "qwen3_next", "qwen3_5")
"""Models with a gate of one column on the expert that all tokens pass through."""
NORMED_QUERY_MODEL_TYPES = ("qwen3", "gemma3")
"""Models that normalise each head of queries and keys; others say it (``use_qk_norm``)."""
INDEXER_KEY = "index_topk"
UNKNOWN_MIXERS = {
    INDEXER_KEY: "sparse attention with an indexer",
    "linear_attn_config": "Kimi's delta attention",
    "mamba_dt_rank": "Mamba's first version",
    "attn_type_list": "lightning attention",
}
"""Keys of models with layers of other kinds."""
UNKNOWN_LAYER_TYPES = ("recurrent", "conv", "rwkv", "lightning")
LINEAR_ATTENTION, STATE_SPACE = "linear_attention", "mamba"
PATTERN_MIXERS = {"M": STATE_SPACE, "*": "attention"}
"""Layers of Nemotron-H by the letters of their pattern; a dash is an MLP, which counts as a layer of its own there."""
MLP_LETTER = "-"


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
        is_shared_gated: Whether a gate of one column weighs that expert.
        is_output_gated: Whether the queries come with a gate for attention's output.
        chunk: Keys after whose multiples attention begins anew; None where it doesn't.
        latent: What the cache holds in place of keys and values, if so.
        linear: Linear attention in place of attention, if so.
        indexer: What selects the keys of latent attention, if so.
        is_query_normed: Whether each head of queries and keys is normalised.
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
    is_shared_gated: bool = False
    is_output_gated: bool = False
    chunk: int | None = None
    latent: LatentAttention | None = None
    linear: LinearAttention | None = None
    indexer: Indexer | None = None
    is_query_normed: bool = False

    @property
    def has_mlp(self) -> bool:
        """Whether an MLP or experts follow; in Nemotron-H some layers have none."""
        return self.mlp_width > 0 or self.shared_width > 0


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

    Raises:
        ModelConfigError: As :func:`parse_model_config`; or the file can't be read, or is too large.
    """
    return parse_model_config(read_config_text(path), str(path))


def read_config_text(path: str | Path) -> bytes:
    """Read the text of a ``config.json``, no more of it than is taken.

    Raises:
        ModelConfigError: The file can't be read.
    """
    from predictors.given_files import describe_failure, read_regular_file

    try:
        return read_regular_file(Path(path), MAX_MODEL_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ModelConfigError(messages.CONFIG_UNREADABLE(path=str(path), reason=describe_failure(error))) from error


def parse_model_config(text: bytes, name: str, *, indexed: bool = False) -> ModelConfig:
    """Parse a ``config.json``.

    Args:
        text: Its text.
        name: Its name in messages.
        indexed: Whether latent attention to keys that an indexer selects is taken: an engine's step is built of it, but
            a trace's kernels aren't told apart.

    Raises:
        ModelConfigError: It isn't a configuration, a size is missing or impossible, or the model has layers of a kind
            that isn't known.
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
    return _ConfigReader(given, name, indexed=indexed).read()


class _ConfigReader:
    def __init__(self, given: Mapping[str, Any], name: str, *, indexed: bool) -> None:
        self._given = given
        self._has_indexer = indexed and bool(given.get(INDEXER_KEY)) and bool(given.get("kv_lora_rank"))
        self._name = name
        classes = given.get("architectures")
        self._architecture = str(classes[0] if isinstance(classes, list) and classes else given.get("model_type", "?"))

    def read(self) -> ModelConfig:
        hidden, count, _ = (self._get_size(key) for key in REQUIRED_KEYS)
        if count > MAX_MODEL_LAYERS:
            raise ModelConfigError(messages.CONFIG_SIZE(path=self._name, key="num_hidden_layers", value=str(count)))
        kinds, has_mlp = self._list_layers(count)
        unknown = [name for key, name in UNKNOWN_MIXERS.items() if self._given.get(key)]
        if self._has_indexer:
            unknown.remove(UNKNOWN_MIXERS[INDEXER_KEY])
        unknown += [kind for kind in kinds if any(other in kind for other in UNKNOWN_LAYER_TYPES)]
        if unknown:
            self._refuse_layers(unknown[0])
        return ModelConfig(
            name=self._name,
            architecture=self._architecture,
            hidden=hidden,
            vocabulary=self._get_size("vocab_size", default=0),
            layers=tuple(self._build_layer(i, *each) for i, each in enumerate(zip(kinds, has_mlp, strict=True))),
        )

    def _list_layers(self, count: int) -> tuple[list[str], list[bool]]:
        """List what mixes the tokens of each layer, and whether an MLP follows; by default it is attention."""
        pattern = self._given.get("hybrid_override_pattern")
        if isinstance(pattern, str):
            return self._read_pattern(pattern, count)
        types = self._given.get("layer_types") or self._given.get("layers_block_type")
        interval = self._get_size("full_attention_interval", default=0)
        kinds = [str(each) for each in types] if isinstance(types, list) else []
        if not kinds and interval:
            kinds = ["" if (i + 1) % interval == 0 else LINEAR_ATTENTION for i in range(count)]
        kinds = (kinds + count * [""])[:count]
        return kinds, [True] * count

    def _read_pattern(self, pattern: str, count: int) -> tuple[list[str], list[bool]]:
        known = set(pattern) <= {*PATTERN_MIXERS, MLP_LETTER} and len(pattern) == count
        if not known or pattern.startswith(MLP_LETTER) or 2 * MLP_LETTER in pattern:
            self._refuse_layers(f"the pattern {pattern[:40]!r}")
        mixers = [i for i, letter in enumerate(pattern) if letter != MLP_LETTER]
        return [PATTERN_MIXERS[pattern[i]] for i in mixers], [pattern[i + 1 : i + 2] == MLP_LETTER for i in mixers]

    def _refuse_layers(self, layers: str) -> NoReturn:
        raise ModelConfigError(messages.CONFIG_LAYERS(path=self._name, architecture=self._architecture, layers=layers))

    def _build_layer(self, index: int, kind: str, has_mlp: bool) -> TransformerLayer:
        heads = self._get_size("num_attention_heads")
        experts = self._count_experts(index)
        width = self._get_size("intermediate_size", default=4 * self._get_size("hidden_size"))
        dense = self._get_size("intermediate_size_mlp", default=width)
        width = self._get_size("moe_intermediate_size", default=width)
        top_k = self._get_size("num_experts_per_tok") if experts else 0
        if top_k > experts:
            raise ModelConfigError(messages.CONFIG_SIZE(path=self._name, key="num_experts_per_tok", value=str(top_k)))
        shared = self._get_size("shared_expert_intermediate_size", default=0)
        shared = shared or self._get_size("n_shared_experts", default=0) * width
        always = self._get_size("shared_intermediate_size", default=0)  # Granite's, beside its experts or without them
        dense, shared = (always, shared) if always and not experts else (dense, always or shared)
        is_llama4 = "intermediate_size_mlp" in self._given
        linear = self._read_linear(kind)
        return TransformerLayer(
            heads=heads,
            kv_heads=self._get_size("num_key_value_heads", default=heads),
            head_dim=self._get_size("head_dim", default=self._get_size("hidden_size") // heads),
            window=self._find_window(kind),
            mlp_width=(width if experts else dense) if has_mlp else 0,
            is_gated=self._is_gated(),
            experts=experts,
            top_k=top_k,
            shared_width=(width if is_llama4 else shared) if experts else 0,
            is_shared_gated=self._is_of_type(GATED_SHARED_MODEL_TYPES),
            is_output_gated=bool(self._given.get("attn_output_gate", self._is_of_type(GATED_ATTENTION_MODEL_TYPES))),
            chunk=self._find_chunk(index, kind),
            latent=None if linear or not self._given.get("kv_lora_rank") else self._read_latent(),
            linear=linear,
            indexer=self._read_indexer() if self._has_indexer and not linear else None,
            is_query_normed=bool(self._given.get("use_qk_norm", self._is_of_type(NORMED_QUERY_MODEL_TYPES))),
        )

    def _read_latent(self) -> LatentAttention:
        return LatentAttention(
            query_rank=self._get_size("q_lora_rank", default=0),
            kv_rank=self._get_size("kv_lora_rank"),
            plain=self._get_size("qk_nope_head_dim"),
            rotated=self._get_size("qk_rope_head_dim"),
            value=self._get_size("v_head_dim"),
        )

    def _read_indexer(self) -> Indexer:
        heads, width = self._get_size("index_n_heads"), self._get_size("index_head_dim")
        return Indexer(heads, width, self._get_size(INDEXER_KEY))

    def _read_linear(self, kind: str) -> LinearAttention | None:
        if LINEAR_ATTENTION in kind:
            return LinearAttention(
                is_delta_rule=True,
                key_heads=self._get_size("linear_num_key_heads"),
                heads=self._get_size("linear_num_value_heads"),
                key_width=self._get_size("linear_key_head_dim"),
                value_width=self._get_size("linear_value_head_dim"),
                taps=self._get_size("linear_conv_kernel_dim"),
                chunk=DELTA_RULE_CHUNK,
            )
        if STATE_SPACE not in kind:
            return None
        heads = self._get_first("mamba_n_heads", "mamba_num_heads")
        inner = self._get_size("mamba_expand", default=2) * self._get_size("hidden_size")
        width = self._given.get("mamba_d_head")
        return LinearAttention(
            is_delta_rule=False,
            key_heads=self._get_first("mamba_n_groups", "n_groups"),
            heads=heads,
            key_width=self._get_first("mamba_d_state", "ssm_state_size"),
            value_width=inner // heads if width == "auto" else self._get_first("mamba_d_head", "mamba_head_dim"),
            taps=self._get_first("mamba_d_conv", "conv_kernel"),
            chunk=self._get_first("mamba_chunk_size", "chunk_size"),
        )

    def _get_first(self, *keys: str) -> int:
        """Get the size that models name differently."""
        return self._get_size(next((key for key in keys if self._given.get(key) is not None), keys[0]))

    def _is_of_type(self, types: tuple[str, ...]) -> bool:
        return str(self._given.get("model_type")).startswith(types)

    def _is_gated(self) -> bool:
        return str(self._given.get("model_type")) not in UNGATED_MODEL_TYPES

    def _count_experts(self, index: int) -> int:
        """Count the experts of a layer; some models have ordinary MLPs in their first layers, or in every other one."""
        counts = [self._get_size(key, default=0) for key in EXPERT_COUNT_KEYS]
        dense, listed = self._given.get("mlp_only_layers"), self._given.get("moe_layers")
        often = self._given.get("moe_layer_freq")
        every = self._get_size("decoder_sparse_step", default=self._get_size("interleave_moe_layer_step", default=1))
        is_dense = index < self._get_size("first_k_dense_replace", default=0) or (index + 1) % max(every, 1) != 0
        is_dense |= isinstance(dense, list) and index in dense
        is_dense |= isinstance(listed, list) and index not in listed
        if isinstance(often, list):
            is_dense |= not (index < len(often) and often[index])
        else:
            is_dense |= index % max(self._get_size("moe_layer_freq", default=1), 1) != 0
        return 0 if is_dense else max(counts)

    def _find_window(self, kind: str) -> int | None:
        window = self._get_size("sliding_window", default=0) or None
        if kind:
            return window if "sliding" in kind else None
        return None if self._given.get("use_sliding_window") is False else window

    def _find_chunk(self, index: int, kind: str) -> int | None:
        """Find after how many keys Llama 4's attention begins anew, which it doesn't in layers without positions."""
        chunk, rotated = self._get_size("attention_chunk_size", default=0) or None, self._given.get("no_rope_layers")
        if kind:
            return chunk if "chunked" in kind else None
        if isinstance(rotated, list) and index < len(rotated):
            return chunk if rotated[index] else None
        return chunk if (index + 1) % 4 else None

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
