"""Variants of a model's config.json: the values of some keys, in all combinations."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from predictors.given_files import read_regular_file
from tracekit.bounds import MAX_MODEL_CONFIG_BYTES, MAX_VARIANTS
from tracekit.capturing.load import describe_error
from tracekit.capturing.options import CONFIG_SUFFIX
from tracekit.errors import CaptureError, RequestError
from tracekit.messages import models as messages

DEPTH_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""Keys of a config that tell how many layers a model has."""
RANGE_PARTS = (2, 3)
Value = int | float | str | bool


@dataclass(frozen=True)
class Variant:
    """One combination of values.

    Attributes:
        values: By key.
        config: The whole config.
    """

    values: Mapping[str, Value]
    config: Mapping[str, Any]

    @property
    def depth_key(self) -> str | None:
        """The key that says how many layers it has, where that is varied."""
        return next((key for key in DEPTH_KEYS if key in self.values), None)

    @property
    def width(self) -> str:
        """What tells it from variants that differ in more than their depth."""
        return json.dumps({key: one for key, one in self.config.items() if key != self.depth_key}, sort_keys=True)


def parse_axes(texts: Iterable[str]) -> dict[str, list[Value]]:
    """Parse keys with their values, such as ``num_hidden_layers=12,24`` or ``hidden_size=1024:4096:512``.

    Raises:
        RequestError: One is malformed, has no values, or is given twice.
    """
    axes: dict[str, list[Value]] = {}
    for text in texts:
        key, _, given = text.partition("=")
        values = [one for part in given.split(",") for one in _parse_values(part.strip())]
        if not key.strip() or not values or key.strip() in axes:
            raise RequestError(messages.VARY_MALFORMED(given=text))
        axes[key.strip()] = [*dict.fromkeys(values)]
    return axes


def _parse_values(text: str) -> list[Value]:
    parts = text.split(":")
    if len(parts) in RANGE_PARTS and all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        first, last, *step = map(int, parts)
        found = range(first, last + 1, max(*step, 1) if step else 1)
        if len(found) > MAX_VARIANTS:
            raise RequestError(messages.VARIANTS_MANY(variants=len(found), most=MAX_VARIANTS))
        return [*found]
    if not text:
        return []
    try:
        value = json.loads(text)
    except ValueError:
        return [text]
    return [value] if isinstance(value, Value) else []


def list_variants(config: str, axes: Mapping[str, Sequence[Value]]) -> list[Variant]:
    """List all combinations of values, the last key's changing fastest.

    Args:
        config: Path of the config.json.
        axes: Values by key; dots lead into what a key holds, as in ``text_config.hidden_size``.

    Raises:
        CaptureError: The file is no config that can be read.
        RequestError: Nothing is varied, a key leads nowhere, or there are too many combinations.
    """
    if not config.endswith(CONFIG_SUFFIX):
        raise RequestError(messages.SEARCH_OF_CONFIG(path=config))
    try:
        given = json.loads(read_regular_file(Path(config), MAX_MODEL_CONFIG_BYTES))
        if not isinstance(given, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError) as error:
        raise CaptureError(messages.PROGRAM_UNREADABLE(path=config, error=describe_error(error))) from error
    if not axes:
        raise RequestError(messages.NOTHING_VARIED())
    count = prod(map(len, axes.values()))
    if not 1 <= count <= MAX_VARIANTS:
        raise RequestError(messages.VARIANTS_MANY(variants=count, most=MAX_VARIANTS))
    for key in axes:
        _check_key(given, key)
    chosen = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return [Variant(values, _change_config(given, values)) for values in chosen]


def _check_key(config: Mapping[str, Any], key: str) -> None:
    """Refuse a key whose dots lead into what isn't there; a key that the config leaves to its default is fine."""
    *outer, _ = key.split(".")
    inside: Any = config
    for name in outer:
        inside = inside.get(name) if isinstance(inside, dict) else None
    if not isinstance(inside, dict):
        raise RequestError(messages.VARY_KEY_UNKNOWN(key=key, known=sorted(config)))


def _change_config(config: Mapping[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    changed = json.loads(json.dumps(config))
    for key, value in values.items():
        *outer, last = key.split(".")
        inside = changed
        for name in outer:
            inside = inside[name]
        inside[last] = value
    return changed
