"""Generate the reference pages of the site: one function per page, from the code and data that the page describes."""

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

import tracekit
from tracekit import schema
from tracekit.cli.app import app
from tracekit.inference_rules import INFERENCE_RULES
from tracekit.messages import Message
from tracekit.messages.catalogue import AREAS, find_templates
from tracekit.prediction import RefusedTarget
from tracekit.reporting.model import Report

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
    "limit": "What sets the pace on the target: `host`, `communication` or `gpu`.",
    "share": "Its percent of the critical path there.",
    "share_here": "Its percent of the critical path as measured.",
    "kernel_time_us": "GPU busy: part of the step in which the GPU runs anything, on any stream.",
    "warnings": "What the reader must know of the trace.",
    "refused": "Targets on which the step can't be predicted.",
    "with_contention": "The step if kernels that run at once slow each other down; null where hardly any do.",
    "time": "Where the step's time goes, in microseconds: kernel families, `communication`, `waiting`, `idle`.",
    "coverage": "Percent of the GPU time that was `modelled`, `scaled` or is `unknown`, that is, kept as measured.",
    "fits_in_memory": "Whether the job fits into the GPU's memory; null if the trace doesn't tell.",
    "reason": "Why the target was refused.",
    "hint": "What to try.",
    "target": "The target, as it was named.",
    "code": "Stable name for programs and tests: see [messages](messages.md).",
    "severity": "`note`, `warning`, `error`, `finding` or `check`.",
    "text": "The message with its values, in one line.",
    "link": "Address of the message in this documentation.",
    "values": "The values in the message, by name; the name's ending gives the unit.",
}
"""Meanings of keys that have another name in the code."""
OVERRIDDEN_KEYS = ("cluster", "gpu")
"""Keys whose value in the code is an object, and a name in JSON."""

KEYS_OF_CLASSES: dict[type, Sequence[str]] = {
    RefusedTarget: ("target", "reason", "hint"),
    Message: ("code", "severity", "values", "text", "link"),
}
"""Keys in JSON of classes that are written in another form."""

RETURNED_CLASSES = (
    "tracekit.trace.Trace",
    "tracekit.prediction.Predictions",
    "tracekit.prediction.Prediction",
    "tracekit.reporting.Report",
    "tracekit.reporting.comparison.Comparison",
)
"""Classes of the values that the functions of tracekit return."""


def list_commands() -> str:
    """Return the page of the command line, from typer."""
    group = typer.main.get_command(app)
    lines = ["# Command line", "", str(group.epilog), ""]
    for name, command in sorted(getattr(group, "commands", {}).items()):
        context = typer.Context(command, info_name=f"tracekit {name}")
        lines += [f"## tracekit {name}", "", "```text", command.get_usage(context), "```", ""]
        lines += [re.sub(r"[\b]", "", command.help or ""), ""]
        rows = []
        for parameter in command.params:
            is_option = parameter.param_type_name == "option"
            label = ", ".join(parameter.opts) if is_option else str(parameter.name).upper()
            rows.append((f"`{label}`", getattr(parameter, "help", None) or ""))
        lines += [*format_table(("option", "meaning"), rows), ""]
    return "\n".join(lines)


def list_python() -> str:
    """Return the page of the Python interface; mkdocstrings fills it from the docstrings."""
    names = [f"tracekit.{name}" for name in sorted(tracekit.__all__, key=lambda name: (not name.islower(), name))]
    lines = ["# Python", "", "`import tracekit as tk`. [How to use it](../how-to/python.md).", ""]
    for title, objects in (("Functions, and their error", names), ("What they return", RETURNED_CLASSES)):
        lines += [f"## {title}", ""]
        for name in objects:
            lines += [f"::: {name}", "    options:", "      heading_level: 3", "      show_root_heading: true", ""]
    return "\n".join(lines)


def list_gpus() -> str:
    """Return the page of known GPUs, from their files."""
    rows = []
    for path in sorted((ROOT / "predictors/gpus").glob("*.toml")):
        gpu = tomllib.loads(path.read_text())
        tensor, vector = gpu.get("tensor_tflops", {}), gpu.get("vector_tflops", {})
        rate = tensor.get("bf16") or tensor.get("fp16") or vector.get("fp16") or vector.get("fp32")
        memory, compute = gpu["memory"], gpu["compute"]
        figures = (memory["size_gb"], memory["bandwidth_gbps"], rate, compute.get("tdp_w", ""))
        rows.append((f"`{path.stem}`", gpu["name"], *(f"{figure:g}" if figure else "" for figure in figures)))
    headings = ("name", "GPU", "memory, GB", "bandwidth, GB/s", "half precision, TFLOP/s", "power, W")
    return "\n".join(
        (
            "# Known GPUs",
            "",
            "`tracekit gpus NAME` shows every figure with its source. Rates are dense peaks of the datasheet: bf16 or "
            "fp16, on tensor cores where there are any, else fp32. [GPU data](gpu-data.md) says which figures are "
            "uncertain.",
            "",
            *format_table(headings, rows),
        )
    )


def list_clusters() -> str:
    """Return the page of known clusters, from their files."""
    rows = []
    for path in sorted((ROOT / "tracekit/comm/clusters").glob("*.toml")):
        cluster = tomllib.loads(path.read_text())
        node = f"{cluster.get('gpus_per_node', '')} x {cluster['gpu']}" if "gpu" in cluster else ""
        nics = (
            f"{cluster['nics_per_node']} x {cluster.get('nic_gbit', '')} Gbit/s" if "nics_per_node" in cluster else ""
        )
        aliases = ", ".join(f"`{alias}`" for alias in cluster.get("aliases", []))
        rows.append((f"`{path.stem}`", aliases, cluster.get("name", ""), node, cluster.get("fabric", ""), nics))
    return "\n".join(
        (
            "# Known clusters",
            "",
            "`tracekit clusters NAME` shows every figure with its source. [Predict a cluster](../how-to/clusters.md) "
            "says how clusters are named.",
            "",
            *format_table(("name", "also", "machine", "node", "links inside", "network per node"), rows),
        )
    )


def list_tables() -> str:
    """Return the page of tables and columns, from the schema."""
    tables = [value for value in vars(schema).values() if isinstance(value, schema.TableSchema)]
    lines = [
        "# Tables and columns",
        "",
        "`trace.to_polars()` returns the tables of a trace; `tracekit export -o kernels.parquet` writes the kernel "
        "table. Times are nanoseconds (`_ns`). A null means that the trace doesn't tell.",
        "",
    ]
    for table in tables:
        rows = [(f"`{column.name}`", describe_type(column.dtype), column.doc) for column in table.columns]
        lines += [f"## {table.name}", "", table.doc, "", *format_table(("column", "type", "meaning"), rows), ""]
    return "\n".join(lines)


def describe_type(dtype: object) -> str:
    """Return a column's type in lower case without parameters, such as ``int64``."""
    return str(dtype).partition("(")[0].lower()


def list_messages() -> str:
    """Return the page of messages, from the catalogue."""
    lines = [
        "# Messages",
        "",
        "Each message has a stable code. JSON carries the code and the values in braces; a value's ending gives its "
        "unit. An option in braces (`{--tp}`) is named as the front end names it.",
        "",
    ]
    for area in AREAS:
        templates = find_templates(area).values()
        rows = [
            (
                f'`{one.code}` <a id="{one.code}"></a>',
                one.severity.value,
                f"{one.text}<br>*{one.hint}*" if one.hint else one.text,
            )
            for one in templates
        ]
        title = (area.__doc__ or area.__name__).splitlines()[0].rstrip(".")
        lines += [f"## {title}", "", *format_table(("code", "severity", "says, and *what to try*"), rows), ""]
    return "\n".join(lines)


def list_rules() -> str:
    """Return the page of inference rules."""
    rows = [(f"`{rule.name}`", rule.summary, rule.evidence) for rule in INFERENCE_RULES]
    is_measured = (ROOT / "tests/validation/results/inference_rules.md").exists()
    link = "[What each is worth on real traces](../results/inference_rules.md)." if is_measured else ""
    return "\n".join(
        (
            "# Inference rules",
            "",
            "A trace does not record everything. These rules infer the rest, in this order. `--without-rule NAME` "
            "switches one off, `tracekit info -v` lists them, and every answer names those that were off.",
            "",
            *format_table(("rule", "infers", "evidence"), rows),
            "",
            link,
        )
    )


def list_json_keys() -> str:
    """Return the page of the JSON output: keys of real output, meanings from the data classes' docstrings."""
    lines = [
        "# JSON output",
        "",
        "`report --json`, `predict --json` and `-o FILE.json` print one object. `source`, `replay` and `warnings` are "
        "always there; `targets` and `refused` belong to `predict`, the other sections to `report`, `kernels` to both. "
        "Times are microseconds (`_us`), shares are percent. A section that is a list has one entry per row.",
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
    return OTHER_KEYS[key] if key in OVERRIDDEN_KEYS else meanings.get(key) or OTHER_KEYS.get(key, "")


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
    """Return the ``Attributes:`` of a class's docstring."""
    section = re.search(r"^Attributes:\n((?:    .*\n?)+)", inspect.getdoc(kind) or "", re.MULTILINE)
    entries = re.findall(r"^    (\w+): ((?:.*\n?)(?:^     +.*\n?)*)", section.group(1), re.M) if section else []
    return {name: " ".join(text.split()) for name, text in entries}


def summarize(kind: type | None) -> str:
    """Return the first paragraph of a class's docstring."""
    return (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ") if kind else ""


def format_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    for row in rows:
        cells = (" ".join(str(cell).split()).replace("|", "\\|").replace("``", "`") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def list_measurements() -> str:
    """Return the page that links all measured tables and notes of the validation."""
    rows = []
    for folder, kind in (("results", "table, written by a study"), ("notes", "tables with notes")):
        for path in sorted((ROOT / "tests/validation" / folder).glob("*.md")):
            title = re.search(r"^# (.*)", path.read_text(), re.MULTILINE)
            if title and path.stem != "README":
                rows.append((f"[{title[1]}](../{folder}/{path.name})", kind))
    return "\n".join(
        (
            "# Measured tables",
            "",
            "`python -m tests.validation NAME` runs a study and writes its table; `list` names them.",
            "",
            *format_table(("page", "is"), rows),
        )
    )


def list_layers() -> str:
    """Return the page of folders, layers and import contracts, from docstrings and pyproject.toml."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    folders = [*sorted(ROOT.glob("tracekit/*/__init__.py")), *sorted(ROOT.glob("predictors/*/__init__.py"))]
    summaries = [(f"`{path.parent.relative_to(ROOT)}/`", read_summary(path)) for path in folders]
    lines = ["# Folders and layers", "", *format_table(("folder", "what it does"), summaries), ""]
    lines += ["import-linter checks the following in `make check`.", ""]
    for contract in linter["contracts"]:
        lines += [f"## {contract['name']}", ""]
        if contract["type"] == "layers":
            lines += ["A layer may import only what stands below it.", "", "```text"]
            lines += [layer.replace("tracekit.", "").replace(" | ", "   ") for layer in contract["layers"]]
            lines += ["```", ""]
        elif contract["type"] == "forbidden":
            sources = ", ".join(f"`{name}`" for name in contract["source_modules"])
            forbidden = ", ".join(f"`{name}`" for name in contract["forbidden_modules"])
            lines += [f"{sources} may not import {forbidden}.", ""]
        else:
            ancestors = ", ".join(f"`{name}`" for name in contract["ancestors"])
            lines += [f"No two folders or files of one parent within {ancestors} import each other.", ""]
    return "\n".join(lines)


def read_summary(path: Path) -> str:
    """Return the first line of a file's docstring, without its roles."""
    summary = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", summary)


PAGES = {
    "explanation/measured.md": list_measurements,
    "contributing/layers.md": list_layers,
    "reference/cli.md": list_commands,
    "reference/python.md": list_python,
    "reference/json.md": list_json_keys,
    "reference/tables.md": list_tables,
    "reference/messages.md": list_messages,
    "reference/rules.md": list_rules,
    "reference/gpus.md": list_gpus,
    "reference/clusters.md": list_clusters,
}
"""Generated pages, and the functions that return them."""
