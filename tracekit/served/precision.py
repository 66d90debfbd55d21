"""The format that a model's config.json says its weights have."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tracekit.errors import RequestError
from tracekit.messages import serving as messages
from tracekit.served.steps import WEIGHT_BYTES

DEFAULT_PRECISION = "bf16"


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
    if found not in WEIGHT_BYTES:
        raise RequestError(messages.SERVING_PRECISION(given=found, what="precision", known=list(WEIGHT_BYTES)))
    return found


def _find_format(quantised: Mapping[str, Any]) -> str:
    method = str(quantised.get("quant_method", "")).lower()
    algorithm = str(quantised.get("quant_algo", "")).lower()
    if "fp4" in algorithm or "nvfp4" in str(quantised.get("format", "")).lower():
        return "nvfp4"
    if method == "fp8" or "fp8" in algorithm or "float" in str(quantised.get("format", "")).lower():
        return "fp8_block" if quantised.get("weight_block_size") else "fp8"
    return method or algorithm or "unknown"
