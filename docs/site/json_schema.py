"""Generate the JSON Schema of ``report --json`` and ``predict --json``: ``python -m docs.site.json_schema`` prints it.

Keys are those of real output, types those of the data classes and of real output together.
"""

import json
import types
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from docs.site.json_output import (
    ENVELOPE,
    FIELD_OF_KEY,
    OVERRIDDEN_KEYS,
    ROOT,
    find_data_class,
    find_hints,
    find_meaning,
    find_meanings,
    find_names,
    find_sections,
    flatten_records,
    summarize,
)
from tracekit.reporting.model import Report

SCHEMA_FILE = "reference/report.schema.json"
"""Where the site has it."""
ALWAYS = ("schema_version", "source", "warnings")
TYPES_OF_VALUES = {
    type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
JSON_TYPES = ("string", "number", "boolean", "array", "object", "null")


def build_schema() -> dict[str, Any]:
    """Return the schema; keys that it doesn't know are allowed, as new ones don't change the format's version."""
    hints = get_type_hints(Report, localns=find_names(Report))
    version = json.loads(next((ROOT / "tests/golden").glob("*.json")).read_text())["schema_version"]
    sections = {}
    for key, values, kind in find_sections():
        section = describe_values(values, hints.get(FIELD_OF_KEY.get(key, key)))
        sections[key] = {"description": ENVELOPE.get(key) or summarize(kind), **section}
    sections["schema_version"] = {"description": ENVELOPE["schema_version"], "const": version}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tracekit report --json and predict --json, format {version}",
        "type": "object",
        "required": list(ALWAYS),
        "properties": sections,
    }


def describe_values(values: Sequence[Any], hint: Any) -> dict[str, Any]:
    """Return the schema of values that one key has, whose type in the code is known or None."""
    kinds = {TYPES_OF_VALUES[type(value)] for value in values}
    known = list_types(hint)
    described: dict[str, Any] = {} if known is None else {"type": [one for one in JSON_TYPES if one in kinds | known]}
    kind = find_data_class(hint)
    records = [value for value in values if isinstance(value, dict)]
    if records and kind:
        described |= describe_records(records, kind)
    items = [item for value in values if isinstance(value, list) for item in value]
    if items and kind and all(isinstance(item, dict) for item in items):
        described["items"] = {"type": "object", **describe_records(items, kind)}
    return described


def describe_records(records: Sequence[Mapping[str, Any]], kind: type) -> dict[str, Any]:
    """Return the schema of objects of one data class."""
    meanings, hints = find_meanings(kind), find_hints(kind)
    properties = {}
    for key in dict.fromkeys(key for record in flatten_records(records) for key in record):
        hint = None if key in OVERRIDDEN_KEYS else hints.get(key)
        inner = describe_values([record[key] for record in records if key in record], hint)
        meaning = find_meaning(key, meanings)
        properties[key] = ({"description": meaning} if meaning else {}) | inner
    own = {field.name for field in fields(kind)}
    required = [key for key in properties if key in own and all(key in record for record in records)]
    return {"properties": properties} | ({"required": required} if required else {})


def list_types(hint: Any) -> AbstractSet[str] | None:
    """Return JSON's types of a type in the code; None where they can't be told."""
    origin = get_origin(hint)
    if origin is Annotated:
        return list_types(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        inner = [list_types(one) for one in get_args(hint)]
        return None if None in inner else set().union(*(one for one in inner if one is not None))
    plain = origin or hint
    if plain is types.NoneType or not isinstance(plain, type):
        return {"null"} if plain is types.NoneType else None
    if issubclass(plain, Enum | str | Path):
        return {"string"}
    if plain in TYPES_OF_VALUES:
        return {TYPES_OF_VALUES[plain]}
    if issubclass(plain, Mapping) or is_dataclass(plain):
        return {"object"}
    return {"array"} if issubclass(plain, Sequence) else None


def write_schema() -> str:
    """Return the schema's file."""
    return json.dumps(build_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(write_schema(), end="")
