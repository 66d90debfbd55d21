"""A served model: its sizes, and the formats of its weights and its cache."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tracekit.errors import RequestError
from tracekit.messages import serving as messages
from tracekit.models.llm import parse_model_config
from tracekit.served.model import (
    ATTENTION,
    BACKENDS,
    CACHE_BYTES,
    COLLECTIVES,
    DENSE,
    SHARED,
    WEIGHT_BYTES,
    ServedModel,
)

DEFAULT_PRECISION = "bf16"
INT4_METHODS = ("awq", "gptq", "auto-round", "compressed-tensors")
LEFT_OUT_KEYS = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules")
LEFT_OUT: Mapping[str, str] = {
    ATTENTION: r"self_attn|attention",
    DENSE: r"mlp\W+(?:\(|gate_|up_|down_)",
    SHARED: "shared_expert",
}
"""Names of matrices that are left out, by their part of a layer."""


def parse_served_model(text: bytes, name: str, precision: str | None, cache_type: str | None) -> ServedModel:
    """Parse the ``config.json`` of a model that is served.

    Args:
        text: The file's text.
        name: Its name.
        precision: Format of the model's products; None as the config says.
        cache_type: Format of keys and values; None for bf16.

    Raises:
        RequestError: A format is unknown.
        ModelConfigError: As :func:`tracekit.models.llm.parse_model_config`.
    """
    config = parse_model_config(text, name, indexed=True)
    check_formats(precision, cache_type)
    quantised = _find_quantisation(text)
    if precision is None and quantised:
        precision, plain = _find_format(quantised), _find_plain_parts(quantised, len(config.layers))
        check_formats(precision, None)
    else:
        plain = frozenset()
    return ServedModel(
        config,
        precision or DEFAULT_PRECISION,
        cache_type or (_find_cache_type(quantised) if quantised else DEFAULT_PRECISION),
        plain,
    )


def check_formats(precision: str | None, cache_type: str | None) -> None:
    """Refuse unknown formats of products, and of keys and values.

    Raises:
        RequestError: One is unknown.
    """
    for given, known, what in ((precision, WEIGHT_BYTES, "precision"), (cache_type, CACHE_BYTES, "cache type")):
        if given is not None and given not in known:
            raise RequestError(messages.SERVING_PRECISION(given=given, what=what, known=list(known)))


def check_backend(given: str | None) -> None:
    """Refuse an unknown name of what exchanges the tokens of experts.

    Raises:
        RequestError: It is unknown.
    """
    if given is not None and given not in (COLLECTIVES, *BACKENDS):
        raise RequestError(messages.SERVING_BACKEND(given=given, known=[COLLECTIVES, *BACKENDS]))


def _find_quantisation(text: bytes) -> Mapping[str, Any] | None:
    """Find how a config.json says that weights are quantised."""
    given = msgspec.json.decode(text)
    found = given.get("quantization_config") or given.get("text_config", {}).get("quantization_config")
    return found if isinstance(found, Mapping) else None


def _find_format(quantised: Mapping[str, Any]) -> str:
    """Find the format of the weights' products, as Hugging Face's methods, compressed-tensors and ModelOpt name it.

    Others are named as they are, which :func:`check_formats` refuses.
    """
    method, algorithm, form = (str(quantised.get(key, "")).lower() for key in ("quant_method", "quant_algo", "format"))
    weights = _find_weights(quantised)
    bits, kind = weights.get("num_bits"), str(weights.get("type", ""))
    told = f"{method} {algorithm} {form}"
    if "mxfp4" in told or "nvfp4" in told:
        return "mxfp4" if "mxfp4" in told else "nvfp4"
    if "fp8" in told or (kind == "float" and bits == 8) or "float" in form:
        is_blocked = quantised.get("weight_block_size") or weights.get("block_structure")
        return "fp8_block" if is_blocked else "fp8"
    if (bits or quantised.get("bits")) == 4 and (kind == "int" or method in INT4_METHODS):
        return "int4"
    return method or algorithm or "unknown"


def _find_weights(quantised: Mapping[str, Any]) -> Mapping[str, Any]:
    """Find what compressed-tensors says of the weights of the first group of matrices."""
    groups = quantised.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    return weights if isinstance(weights, Mapping) else {}


def _find_cache_type(quantised: Mapping[str, Any]) -> str:
    """Find the format of keys and values: 8 or 4 bits where compressed-tensors or ModelOpt say so."""
    algorithm = str(quantised.get("kv_cache_quant_algo", "")).lower()
    if algorithm in ("fp8", "nvfp4"):
        return algorithm
    scheme = quantised.get("kv_cache_scheme")
    if not isinstance(scheme, Mapping) or scheme.get("num_bits") not in (4, 8):
        return DEFAULT_PRECISION
    if scheme["num_bits"] == 8:
        return "fp8"
    return "nvfp4" if scheme.get("type") == "float" else "int4"


def _find_plain_parts(quantised: Mapping[str, Any], layers: int) -> frozenset[str]:
    """Find the parts of layers that stay in 16 bits: those that are left out of at least half of the layers."""
    lists = (quantised.get(key) for key in LEFT_OUT_KEYS)
    names = [str(name) for one in lists if isinstance(one, list) for name in one]
    found = set()
    for part, pattern in LEFT_OUT.items():
        of_part = [name for name in names if re.search(pattern, name)]
        numbers = {number[1] for name in of_part if (number := re.search(r"layers\.(\d+)\.", name))}
        of_all = any(re.search(r"layers\.\d+\.", name) is None for name in of_part)
        if of_all or len(numbers) >= max(layers / 2, 1):
            found.add(part)
    return frozenset(found)
