"""The program to capture, as it is loaded, and what a Hugging Face config says of how its model runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tracekit.errors import CaptureError
from tracekit.messages import models as messages

ATTENTION_KEYS = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
"""Keys of a config that name how attention is computed."""
FLASH_KEY = "_flash_attn_2_enabled"
"""The same, before transformers 4.36."""
ATTENTION_KINDS = {
    "eager": "eager",
    "sdpa": "sdpa",
    "flash_attention_2": "flash",
    "flash_attention_3": "flash",
    "kernels-community/flash-attn": "flash",
    "kernels-community/flash-attn2": "flash",
    "kernels-community/flash-attn3": "flash",
}
"""transformers' names -> those of the option."""
DEFAULT_ATTENTION = "sdpa"
QUANTIZATION_KEY = "quantization_config"
FP8_METHODS = ("fp8", "fbgemm_fp8")
"""Methods whose weights, and the inputs of their products, are e4m3."""
FP8_FORMATS = ("e4m3", "float8_e4m3fn", "float8_e4m3")
KEPT_KEYS = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules")
"""Keys that list modules which stay as they are."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the linear layers of a model are quantized.

    Attributes:
        method: As the config names it.
        kept: Names of modules that stay as they are.
    """

    method: str
    kept: tuple[str, ...]

    def keeps(self, name: str) -> bool:
        """Return whether a module stays as it is."""
        return any(name == one or name.startswith(f"{one}.") or name.endswith(f".{one}") for one in self.kept)


def pop_attention(config: dict[str, Any]) -> str | None:
    """Take out of a config how attention is computed; None where it doesn't say.

    Raises:
        CaptureError: In a way that can't be captured.
    """
    found = [given for key in ATTENTION_KEYS if (given := config.pop(key, None)) not in (None, "", {})]
    is_flash = config.pop(FLASH_KEY, None)
    names = {name for given in found for name in (given.values() if isinstance(given, Mapping) else [given])}
    kinds = {ATTENTION_KINDS.get(str(name).removeprefix("paged|").partition("@")[0]) for name in names}
    if None in kinds or len(kinds) > 1:
        raise CaptureError(messages.CONFIG_ATTENTION(attention=sorted(map(str, names))))
    return next(iter(kinds), "flash" if is_flash is True else None)


def pop_quantization(config: dict[str, Any]) -> Quantization | None:
    """Take out of a config how its weights are quantized; None where they aren't.

    Raises:
        CaptureError: By a method that can't be captured.
    """
    given = config.pop(QUANTIZATION_KEY, None)
    if not given:
        return None
    if not isinstance(given, Mapping):
        raise CaptureError(messages.CONFIG_QUANTIZATION(method=str(given)))
    if not _is_fp8(given):
        raise CaptureError(messages.CONFIG_QUANTIZATION(method=_name_method(given)))
    kept = (name for key in KEPT_KEYS for name in _list_texts(given.get(key)))
    return Quantization(_name_method(given), tuple(kept))


def _is_fp8(given: Mapping[str, Any]) -> bool:
    """Return whether weights and inputs of all quantized layers are e4m3."""
    method = given.get("quant_method")
    if method in FP8_METHODS:
        return given.get("fmt", FP8_FORMATS[0]) in FP8_FORMATS
    if method == "modelopt":
        return given.get("quant_algo") == "FP8"
    groups = given.get("config_groups")
    if method != "compressed-tensors" or not isinstance(groups, Mapping) or not groups:
        return False
    parts = (
        group.get(part) if isinstance(group, Mapping) else None
        for group in groups.values()
        for part in ("weights", "input_activations")
    )
    return all(isinstance(one, Mapping) and (one.get("num_bits"), one.get("type")) == (8, "float") for one in parts)


def _name_method(given: Mapping[str, Any]) -> str:
    """Return the method, with what tells its kinds apart."""
    details = ("quant_algo", "format", "fmt", "bits", "load_in_8bit", "load_in_4bit", "bnb_4bit_quant_type")
    told = [f"{key} {given[key]}" for key in details if given.get(key) not in (None, False, "")]
    return ", ".join([str(given.get("quant_method", "without a method")), *told])


def _list_texts(value: Any) -> Iterable[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


@dataclass(frozen=True)
class LoadedProgram:
    """A model on the meta device, and what it is called with.

    Attributes:
        model: A module, or a function.
        attention: How its attention is computed, where its config or a default says so; empty where its code does.
        quantization: How its weights are quantized, as its config says; empty where they aren't.
        tokens: Tokens of each sequence; 0 where it has none, or nothing tells.
        left_out: What its description has and the capture lacks.
    """

    name: str
    model: Any
    inputs: tuple[Any, ...] = ()
    keywords: dict[str, Any] | None = None
    attention: str = ""
    quantization: str = ""
    tokens: int = 0
    left_out: tuple[str, ...] = ()
