"""Read the file of a torchtitan job: its model as a Hugging Face config, the rest as the request's options.

torchtitan's own defaults count where the file doesn't say (``torchtitan/config/job_config.py``): selective
recomputation, the fused AdamW, bf16 products, data-parallel shards over all GPUs that are left. Flavours are those of
``torchtitan/models`` (January 2026). What an option can't say is refused, or listed where it changes little.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.errors import RequestError
from tracekit.messages import models as messages
from tracekit.models.stacks import TORCHTITAN

TOML_SUFFIX = ".toml"
MODEL_SIGN, FLAVOUR_SIGN = b"[model]", b"flavor"
SECTIONS = ("parallelism", "training", "experimental")
"""Where degrees of parallelism are, by age of the file."""
ATTENTION_ENDINGS = ("_flex_attn", "_varlen_attn", "_flex", "_varlen", "_fused_qkv")
"""Of flavours that differ from another one in how attention is computed or its weights lie."""
DEGREES = {
    "tp": "tensor_parallel_degree", "pp": "pipeline_parallel_degree", "cp": "context_parallel_degree",
    "ep": "expert_parallel_degree",
}  # fmt: skip
"""Keys of the file, by the names of options."""
ALL_LEFT = -1
"""Shards of data parallelism that torchtitan makes of all GPUs that are left."""
DEFAULT_TOKENS, DEFAULT_BATCH = 2048, 8
RECOMPUTATION = ("none", "selective", "full")
OPTIMIZERS = {"fused": "fused-adamw", "foreach": "adamw", "for-loop": "adamw"}
"""Implementations of AdamW."""
SCHEDULES = {"1f1b": "1f1b", "interleaved1f1b": "interleaved"}
FLOAT8_RECIPES = {"tensorwise": "fp8", "rowwise": "fp8_rowwise", "rowwise_with_gw_hp": "fp8_rowwise"}


def _make_llama(dim: int, layers: int, heads: int, kv_heads: int, hidden: int, vocabulary: int = 128256) -> Any:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": dim,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": hidden,
        "vocab_size": vocabulary,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }


def _make_qwen(dim: int, layers: int, heads: int, kv_heads: int, hidden: int, *, tied: bool = False) -> Any:
    return _make_llama(dim, layers, heads, kv_heads, hidden, 151936) | {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": tied,
    }


def _make_qwen_moe(dim: int, layers: int, heads: int, hidden: int) -> Any:
    return _make_qwen(dim, layers, heads, 4, hidden) | {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "moe_intermediate_size": hidden,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
    }


def _make_deepseek(
    sizes: tuple[int, int, int, int], experts: tuple[int, int, int, int], *, query_rank: int | None, vocabulary: int
) -> Any:
    """Make a config of latent attention.

    Args:
        sizes: Width, layers, heads, and hidden width of the dense layers.
        experts: Their number, how many a token has, how many all have, and their hidden width.
        query_rank: Of compressed queries.
        vocabulary: Words.
    """
    dim, layers, heads, hidden = sizes
    number, chosen, shared, narrow = experts
    return _make_llama(dim, layers, heads, heads, hidden, vocabulary) | {
        "model_type": "deepseek_v3",
        "architectures": ["DeepseekV3ForCausalLM"],
        "q_lora_rank": query_rank,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": number,
        "num_experts_per_tok": chosen,
        "n_shared_experts": shared,
        "moe_intermediate_size": narrow,
        "first_k_dense_replace": 3 if number == 256 else 1,
        "n_group": 8 if query_rank else 1,
        "topk_group": 4 if number == 256 else 3 if query_rank else 1,
    }


def _make_gpt_oss(layers: int, experts: int) -> Any:
    return _make_llama(2880, layers, 64, 8, 2880, 201088) | {
        "model_type": "gpt_oss",
        "architectures": ["GptOssForCausalLM"],
        "head_dim": 64,
        "num_local_experts": experts,
        "num_experts_per_tok": 4,
    }


def _make_llama4(experts: int, moe_every: int) -> Any:
    return _make_llama(5120, 48, 40, 8, 8192, 202048) | {
        "model_type": "llama4_text",
        "architectures": ["Llama4ForCausalLM"],
        "head_dim": 128,
        "intermediate_size_mlp": 16384,
        "num_local_experts": experts,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": moe_every,
    }


FLAVOURS: Mapping[str, Mapping[str, Callable[[], Any]]] = {
    "llama3": {
        "debugmodel": lambda: _make_llama(256, 6, 16, 16, 768, 2048),
        "8B": lambda: _make_llama(4096, 32, 32, 8, 14336),
        "70B": lambda: _make_llama(8192, 80, 64, 8, 28672),
        "405B": lambda: _make_llama(16384, 126, 128, 8, 53248),
    },
    "llama4": {"17bx16e": lambda: _make_llama4(16, 1), "17bx128e": lambda: _make_llama4(128, 2)},
    "qwen3": {
        "0.6B": lambda: _make_qwen(1024, 28, 16, 8, 3072, tied=True),
        "1.7B": lambda: _make_qwen(2048, 28, 16, 8, 6144, tied=True),
        "4B": lambda: _make_qwen(2560, 36, 32, 8, 9728, tied=True),
        "8B": lambda: _make_qwen(4096, 36, 32, 8, 12288),
        "14B": lambda: _make_qwen(5120, 40, 40, 8, 17408),
        "32B": lambda: _make_qwen(5120, 64, 64, 8, 25600),
        "30B-A3B": lambda: _make_qwen_moe(2048, 48, 32, 768),
        "235B-A22B": lambda: _make_qwen_moe(4096, 94, 64, 1536),
    },
    "deepseek_v3": {
        "16B": lambda: _make_deepseek((2048, 27, 16, 10944), (64, 6, 2, 1408), query_rank=None, vocabulary=102400),
        "236B": lambda: _make_deepseek((5120, 60, 128, 12288), (160, 6, 2, 1536), query_rank=1536, vocabulary=102400),
        "671B": lambda: _make_deepseek((7168, 61, 128, 18432), (256, 8, 1, 2048), query_rank=1536, vocabulary=129280),
    },
    "gpt_oss": {"20b": lambda: _make_gpt_oss(24, 32), "120b": lambda: _make_gpt_oss(36, 128)},
}
"""Models and flavours -> their Hugging Face configs."""


def is_training_text(head: bytes) -> bool:
    """Return whether a TOML file is that of a torchtitan job, by its text."""
    return MODEL_SIGN in head and FLAVOUR_SIGN in head


@dataclass(frozen=True)
class TrainingFile:
    """A torchtitan job.

    Attributes:
        path: Its file.
        sections: The file's tables.
    """

    path: str
    sections: Mapping[str, Any]

    def get(self, section: str, key: str, default: Any = None) -> Any:
        """Return a value of the file; ``default`` where it doesn't say."""
        return self.sections.get(section, {}).get(key, default)

    @property
    def model(self) -> dict[str, Any]:
        """The model as a Hugging Face config.

        Raises:
            RequestError: Its sizes aren't known.
        """
        name, flavour = str(self.get("model", "name")), str(self.get("model", "flavor"))
        known = FLAVOURS.get(name)
        if known is None:
            raise RequestError(messages.TORCHTITAN_MODEL_UNKNOWN(path=self.path, model=name, known=list(FLAVOURS)))
        ending = next((one for one in ATTENTION_ENDINGS if flavour.endswith(one)), "")
        made = known.get(flavour.removesuffix(ending))
        if made is None:
            raise RequestError(
                messages.TORCHTITAN_FLAVOUR_UNKNOWN(path=self.path, flavour=flavour, model=name, known=list(known))
            )
        return dict(made())

    @property
    def left_out(self) -> tuple[str, ...]:
        """Keys that change the time and that no option says."""
        found = (
            ("parallelism.enable_async_tensor_parallel", self._find_degree("enable_async_tensor_parallel", False)),
            *(
                (f"{section}.enable_fsdp_float8_all_gather", self._finds_float8_gather(section))
                for section in ("float8", "quantize")
            ),
            ("parallelism.data_parallel_replicate_degree", self._find_degree("data_parallel_replicate_degree", 1) > 1),
        )
        return tuple(name for name, is_set in found if is_set)

    def _finds_float8_gather(self, section: str) -> bool:
        given = self.sections.get(section, {})
        nested = given.get("linear", {}).get("float8", {}) if section == "quantize" else given
        return bool(nested.get("enable_fsdp_float8_all_gather"))

    def _find_degree(self, name: str, default: Any) -> Any:
        found = (self.get(section, name) for section in SECTIONS)
        return next((one for one in found if one is not None), default)

    def build_program_options(self) -> dict[str, Any]:
        """Build the options of the program: names as in the request, values where they aren't the defaults.

        Raises:
            RequestError: A value that no option has.
        """
        optimizer = str(self.get("optimizer", "name", "AdamW")).lower()
        how = str(self.get("optimizer", "implementation", "fused"))
        mode = str(self.get("activation_checkpoint", "mode", "selective"))
        if mode not in RECOMPUTATION:
            raise self._refuse("activation_checkpoint.mode", mode)
        compiles = self.get("compile", "enable", self.get("training", "compile", False))
        given = {
            "train": True,
            "seq": int(self.get("training", "seq_len", DEFAULT_TOKENS)),
            "optimizer": OPTIMIZERS.get(how, "fused-adamw") if optimizer == "adamw" else optimizer,
            "compile": bool(compiles),
            "precision": self._find_precision(),
            "recompute": None if mode == "none" else mode,
            "stack": TORCHTITAN,
        }
        return {name: value for name, value in given.items() if value}

    def _find_precision(self) -> str | None:
        """Return the format of the linear layers' products."""
        converters = self.get("model", "converters", ())
        named = [converters] if isinstance(converters, str) else list(converters)
        if any("mx" in one for one in named):
            return "mxfp8"
        if not any("float8" in one for one in named):
            return None
        nested = self.sections.get("quantize", {}).get("linear", {}).get("float8", {})
        recipe = str(nested.get("recipe_name") or self.get("float8", "recipe_name") or "tensorwise")
        if recipe not in FLOAT8_RECIPES:
            raise self._refuse("float8.recipe_name", recipe)
        return FLOAT8_RECIPES[recipe]

    def build_layout(self, gpus: int | None, asked: Mapping[str, int]) -> dict[str, Any]:
        """Build the options of the layout.

        Args:
            gpus: Those of the target; None where there is but one.
            asked: Degrees that were asked for in place of the file's: ``tp``, ``pp``, ``cp``, ``ep``.

        Raises:
            RequestError: The degrees don't make up the GPUs, or a value that no option has.
        """
        degrees = {name: self._find_degree(key, 1) for name, key in DEGREES.items()}
        tp, pp, cp, ep = ({**degrees, **asked}[name] for name in DEGREES)
        copies = self._find_degree("data_parallel_replicate_degree", 1)
        shards = self._find_degree("data_parallel_shard_degree", self._find_degree("data_parallel_degree", ALL_LEFT))
        if shards == ALL_LEFT:
            shards = (gpus or tp * pp * cp * copies) // (tp * pp * cp * copies)
        if shards < 1 or (gpus is not None and copies * shards * tp * pp * cp != gpus):
            raise RequestError(
                messages.TORCHTITAN_RANKS(path=self.path, ranks=copies * max(shards, 1) * tp * pp * cp, gpus=gpus or 1)
            )
        dp = copies * shards
        batch = self.get("training", "local_batch_size", self.get("training", "batch_size", DEFAULT_BATCH))
        total = self.get("training", "global_batch_size", -1)
        rounds = max(total // (batch * dp), 1) if total > 0 else 1
        if pp > 1:
            each = self.get("parallelism", "pipeline_parallel_microbatch_size", 1)
            batch, rounds = each, rounds * (batch // each)
        schedule = str(self._find_degree("pipeline_parallel_schedule", "1F1B"))
        if pp > 1 and schedule.lower() not in SCHEDULES:
            raise self._refuse("parallelism.pipeline_parallel_schedule", schedule)
        given = {
            "dp": dp if dp > 1 else None,
            "fsdp": shards > 1,
            "tp": tp if tp > 1 else None,
            "sequence_parallel": tp > 1,
            "pp": pp if pp > 1 else None,
            "pp_schedule": SCHEDULES[schedule.lower()] if pp > 1 else None,
            "cp": cp if cp > 1 else None,
            "ep": ep if ep > 1 else None,
            "micro_batches": rounds if rounds > 1 else None,
            "batch": float(batch),
        }
        return {name: value for name, value in given.items() if value}

    def _refuse(self, key: str, value: str) -> RequestError:
        return RequestError(messages.TORCHTITAN_VALUE(path=self.path, key=key, value=value))


def read_training_file(path: str) -> TrainingFile:
    """Read the file of a torchtitan job.

    Raises:
        RequestError: It can't be read.
    """
    from predictors.given_files import describe_failure, read_toml

    try:
        return TrainingFile(Path(path).name, read_toml(Path(path)))
    except (OSError, ValueError) as error:
        raise RequestError(messages.PROGRAM_UNREADABLE(path=path, error=describe_failure(error))) from error
