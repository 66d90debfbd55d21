"""A served model: its sizes, and the formats of its weights and its cache."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tracekit.errors import RequestError
from tracekit.messages import serving as messages
from tracekit.models.llm import parse_model_config
from tracekit.served.model import CACHE_BYTES, WEIGHT_BYTES, ServedModel

DEFAULT_PRECISION = "bf16"


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
    config = parse_model_config(text, name)
    check_formats(precision, cache_type)
    return ServedModel(config, precision or read_precision(text), cache_type or DEFAULT_PRECISION)


def check_formats(precision: str | None, cache_type: str | None) -> None:
    """Refuse unknown formats of products, and of keys and values.

    Raises:
        RequestError: One is unknown.
    """
    for given, known, what in ((precision, WEIGHT_BYTES, "precision"), (cache_type, CACHE_BYTES, "cache type")):
        if given is not None and given not in known:
            raise RequestError(messages.SERVING_PRECISION(given=given, what=what, known=list(known)))


def read_precision(text: bytes) -> str:
    """Read the precision of a model's products from its ``quantization_config``; bf16 without one.

    Args:
        text: A config.json, as a model's configuration was read from it.

    Raises:
        RequestError: It says a format whose kernels aren't known here.
    """
    given = msgspec.json.decode(text)
    quantised = given.get("quantization_config") or given.get("text_config", {}).get("quantization_config")
    if not isinstance(quantised, Mapping):
        return DEFAULT_PRECISION
    found = _find_format(quantised)
    check_formats(found, None)
    return found


def _find_format(quantised: Mapping[str, Any]) -> str:
    method = str(quantised.get("quant_method", "")).lower()
    algorithm = str(quantised.get("quant_algo", "")).lower()
    if "fp4" in algorithm or "nvfp4" in str(quantised.get("format", "")).lower():
        return "nvfp4"
    if method == "fp8" or "fp8" in algorithm or "float" in str(quantised.get("format", "")).lower():
        return "fp8_block" if quantised.get("weight_block_size") else "fp8"
    return method or algorithm or "unknown"
