"""Generate the page of the JSON output: keys of real output, meanings from the data classes."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from docs.site.markdown import format_table
from tracekit.messages import Message
from tracekit.prediction import RefusedTarget
from tracekit.reporting.columns import describe_fields
from tracekit.reporting.model import Report
from tracekit.reporting.step_row import StepRow

ROOT = Path(__file__).parents[2]
GOLDENS = sorted((ROOT / "tests/golden").glob("*.json"))
"""Real output of both sample traces, which a test keeps current."""

ENVELOPE = {
    "schema_version": "Version of this format. New keys don't change it.",
    "kernels_omitted": "Kernels that are left out of `kernels`.",
    "other_kernels": "The kernels that are left out, in short form, for `tracekit compare`.",
}
"""Meanings of the keys that no data class has."""
FIELD_OF_KEY = {"critical_path": "critical", "sensitivity": "speeds"}
"""Names of sections that differ between JSON and :class:`Report`."""
OTHER_KEYS = {
    "gpu": "The GPU's canonical name.",
    "cluster": "The cluster's canonical name; null where only a GPU was named.",
    "idle_us": "Rest of the step.",
    "limit": "What sets the pace on the target: `host`, `communication`, `gpu`, `latency`, `unexplained`; "
    "`host or gpu` and the like where it hangs on the CPU.",
    "share": "Its percent of the critical path there.",
    "share_here": "Its percent of the critical path as measured.",
    "kernel_time_us": "GPU busy: part of the step in which the GPU runs anything, on any stream.",
    "warnings": "What the reader must know of the trace.",
    "refused": "Targets on which the step can't be predicted.",
    "with_contention": "The step if kernels that run at once slow each other down; null where hardly any do.",
    "with_same_host": "The step with a CPU like the trace's; null where the CPU hardly matters or is given.",
    "time": "Where the step's time goes, in microseconds: kernel families, `communication`, `waiting`, `idle`.",
    "coverage": "Percent of kernel time that was `modelled`, `inferred`, `scaled` or is `unknown`: kept as measured.",
    "fits_in_memory": "Whether the job fits into the GPU's memory; null if the trace doesn't tell.",
    "reason": "Why the target was refused.",
    "hint": "What to try.",
    "target": "The target, as it was named.",
    "code": "Stable name for programs and tests: see [messages](messages.md).",
    "severity": "`note`, `warning`, `error`, `finding` or `check`.",
    "text": "The message with its values, in one line.",
    "effect_us": "By how much what a note says may change the step; null where that can't be worked out.",
    "link": "Address of the message in this documentation.",
    "values": "The values in the message, by name; the name's ending gives the unit.",
}
"""Meanings of keys that have another name in the code."""
FALLBACK_MEANINGS = describe_fields(StepRow) | OTHER_KEYS
"""Meanings of keys that the data class of their object doesn't have."""
OVERRIDDEN_KEYS = ("cluster", "gpu")
"""Keys whose value in the code is an object, and a name in JSON."""

KEYS_OF_CLASSES: dict[type, Sequence[str]] = {
    RefusedTarget: ("target", "reason", "hint"),
    Message: ("code", "severity", "values", "text", "link"),
}
"""Keys in JSON of classes that are written in another form."""


def list_json_keys() -> str:
    """Return the page of the JSON output: keys of real output, meanings from the data classes."""
    lines = [
        "# JSON output",
        "",
        "`report --json`, `predict --json` and `-o FILE.json` print one object. `source`, `replay` and `warnings` are "
        "always there; `targets` and `refused` belong to `predict`, the other sections to `report`, `kernels` to both. "
        "Times are microseconds (`_us`), shares are percent. A section that is a list has one entry per row. "
        "A program checks output against `report.schema.json`, its [JSON Schema](report.schema.json), which "
        "`python -m docs.site.json_schema` prints, too.",
        "",
    ]
    for key, value, kind in find_sections():
        lines += [f"## {key}", "", ENVELOPE.get(key) or summarize(kind), ""]
        keys = list_keys(value, kind)
        rows = [(f"`{path}`", ", ".join(types), re.sub("`?None`?", "null", meaning)) for path, types, meaning in keys]
        lines += [*format_table(("key", "type", "meaning"), rows), ""] if rows else []
    return "\n".join(lines)


def find_sections() -> Iterator[tuple[str, list[Any], Any]]:
    """Yield each section's key, its values in real output, and its data class."""
    outputs = [json.loads(path.read_text()) for path in GOLDENS]
    hints = get_type_hints(Report, localns=find_names(Report))
    for key in dict.fromkeys(key for output in outputs for key in output):
        kind = find_data_class(hints.get(FIELD_OF_KEY.get(key, key)))
        yield key, [output[key] for output in outputs if key in output], kind


def find_names(kind: type) -> dict[str, Any]:
    """Return stand-ins for names that a class's module imports for type checkers only."""
    module = inspect.getmodule(kind)
    return {"Figure": object, **vars(module)} if module else {}


def find_data_class(hint: Any) -> type | None:
    """Return the data class in a type such as ``tuple[Row, ...]`` or ``Row | None``."""
    if isinstance(hint, type) and is_dataclass(hint):
        return hint
    return next((found for one in get_args(hint) if (found := find_data_class(one))), None)


def list_keys(values: Sequence[Any], kind: type | None, prefix: str = "") -> list[tuple[str, list[str], str]]:
    """Return path, types and meaning of every key in some objects of one data class."""
    meanings = find_meanings(kind) if kind else {}
    hints = find_hints(kind) if kind else {}
    records = list(flatten_records(values))
    if not records and kind:  # the samples have no such rows
        names = KEYS_OF_CLASSES.get(kind, [field.name for field in fields(kind)])
        return [(name, [], find_meaning(name, meanings)) for name in names]
    rows = []
    for key in dict.fromkeys(key for record in records for key in record):
        inner = [record[key] for record in records if key in record]
        path = f"{prefix}{key}"
        rows.append((path, sorted({name_type(value) for value in inner}), find_meaning(key, meanings)))
        nested = find_data_class(hints.get(key))
        if nested and nested is not kind and any(flatten_records(inner)):
            is_list = any(isinstance(value, list) for value in inner)
            rows += list_keys(inner, nested, f"{path}[]." if is_list else f"{path}.")
    return rows


def find_meaning(key: str, meanings: Mapping[str, str]) -> str:
    """Return what a key means: by its data class, else by its name."""
    return OTHER_KEYS[key] if key in OVERRIDDEN_KEYS else meanings.get(key) or FALLBACK_MEANINGS.get(key, "")


def flatten_records(values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects among values and in lists of them."""
    for value in values:
        if isinstance(value, dict):
            yield value
        elif isinstance(value, list):
            yield from flatten_records(value)


def name_type(value: Any) -> str:
    """Return JSON's name of a value's type."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names[type(value)]


def find_hints(kind: type) -> dict[str, Any]:
    """Return the types of a data class's fields."""
    return get_type_hints(kind, localns=find_names(kind))


def find_meanings(kind: type) -> dict[str, str]:
    """Return the meanings of a data class's fields and properties, and of the fields of data classes inside."""
    meanings: dict[str, str] = {}
    for field in fields(kind):
        nested = find_data_class(find_hints(kind).get(field.name))
        if nested and nested is not kind and field.name in ("step", "memory", "cluster", "target"):
            meanings |= read_attributes(nested)
    for name, member in inspect.getmembers(kind, lambda member: isinstance(member, property)):
        meanings[name] = (inspect.getdoc(member) or "").partition("\n\n")[0].replace("\n", " ")
    return meanings | read_attributes(kind)


def read_attributes(kind: type) -> dict[str, str]:
    """Return what a class's docstring and the columns of its fields say of them."""
    section = re.search(r"^Attributes:\n((?:    .*\n?)+)", inspect.getdoc(kind) or "", re.MULTILINE)
    entries = re.findall(r"^    (\w+): ((?:.*\n?)(?:^     +.*\n?)*)", section.group(1), re.M) if section else []
    return {name: " ".join(text.split()) for name, text in entries} | describe_fields(kind)


def summarize(kind: type | None) -> str:
    """Return the first paragraph of a class's docstring."""
    return (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ") if kind else ""
