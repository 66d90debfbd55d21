"""Generate the reference pages of the site: one function per page, from the code and data that the page describes."""

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import polars as pl
import typer

import tracekit
from docs.site.gpu_accuracy import list_gpu_accuracy
from docs.site.json_output import list_json_keys, read_attributes
from docs.site.markdown import format_table
from predictors import given_files as toml_bounds
from predictors.gpu import Gpu
from predictors.gpu_names import KEY_TYPES
from tracekit import bounds, schema
from tracekit.cli.app import app
from tracekit.format import format_bytes
from tracekit.inference_rules import INFERENCE_RULES
from tracekit.messages.catalogue import AREAS, find_templates

ROOT = Path(__file__).parents[2]
RETURNED_CLASSES = (
    "tracekit.trace.Trace",
    "tracekit.prediction.Predictions",
    "tracekit.prediction.Prediction",
    "tracekit.notebook.NotebookReport",
    "tracekit.reporting.Report",
    "tracekit.reporting.comparison.Comparison",
    "tracekit.served.answer.ServedTarget",
    "tracekit.sharding.plan.ShardingPlans",
    "tracekit.sharding.plan.ShardingPlan",
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
        rows, group = [], ""
        for parameter in command.params:
            is_option = parameter.param_type_name == "option"
            label = ", ".join(parameter.opts) if is_option else str(parameter.name).upper()
            panel = getattr(parameter, "rich_help_panel", None) or group
            if panel != group:
                rows.append((f"**{panel}**", ""))
            group = panel
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
            "",
            "## Fields of a GPU's file",
            "",
            *format_table(("section", "field", "meaning"), [*_list_gpu_fields()]),
        )
    )


def _list_gpu_fields() -> Iterator[tuple[str, str, str]]:
    """Yield the fields of a GPU's file by section; units are the file's, meanings those of the class."""
    meanings = read_attributes(Gpu)
    for section, keys in KEY_TYPES.items():
        if section.endswith("_tflops"):
            yield f"`{section}`", ", ".join(f"`{dtype}`" for dtype in keys), meanings[section]
            continue
        for key in keys:
            stem = re.sub(r"_(gb|mib|kib)$", "", key)
            candidates = (key, f"{section}_{key}", f"{stem}_bytes", f"{section}_bytes")
            yield (
                f"`{section}`" * bool(section),
                f"`{key}`",
                next(meanings[name] for name in candidates if name in meanings),
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


def list_limits() -> str:
    """Return the page of limits, from the modules that name them."""
    rows = []
    for module in (bounds, toml_bounds):
        body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
        for given, reason in pairwise(body):
            if (
                isinstance(given, ast.Assign)
                and isinstance(reason, ast.Expr)
                and isinstance(reason.value, ast.Constant)
            ):
                name = ast.unparse(given.targets[0])
                value = getattr(module, name)
                shown = format_bytes(value) if name.endswith("_BYTES") else f"{value:,}"
                rows.append((f"`{name}`", shown, " ".join(str(reason.value.value).split())))
    return "\n".join(
        (
            "# Limits",
            "",
            "What is longer, larger or more is refused with a message, or cut and said, before work begins; on the "
            "command line and on the web page alike. `tracekit serve --help` has the limits of a server besides.",
            "",
            *format_table(("limit", "value", "reason"), rows),
        )
    )


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


def list_measurements() -> str:
    """Return the page that links all measured tables and notes of the validation."""
    rows = []
    for folder, kind in (("results", "table, written by a study"), ("notes", "tables with notes")):
        for path in sorted((ROOT / "tests/validation" / folder).rglob("*.md")):
            title = re.search(r"^# (.*)", path.read_text(), re.MULTILINE)
            if title and path.stem != "README":
                rows.append((f"[{title[1]}](../{path.relative_to(ROOT / 'tests/validation')})", kind))
    return "\n".join(
        (
            "# Measured tables",
            "",
            "`python -m tests.validation NAME` runs a study and writes its table; `list` names them.",
            "",
            *format_table(("page", "is"), rows),
        )
    )


def list_compositions() -> str:
    """Return the page of which inputs meet which questions, from the tables that a test keeps."""
    lines = ["# What composes", ""]
    for command, name in (
        ("predict", "what_composes"),
        ("serving", "what_composes_serving"),
        ("search", "what_composes_search"),
    ):
        table = pl.read_csv(ROOT / f"tests/golden/answers/{name}.csv", infer_schema=False)
        rows = [
            (f"`{asked}`" if asked[0] == "-" else asked, *map(_link_outcome, cells))
            for asked, cells in table.drop("input").to_dict(as_series=False).items()
        ]
        lines += [
            f"Each kind of input with each question of `tracekit {command}`: ✓ works; otherwise the message that says "
            "why it can't be answered.",
            "",
            *format_table(("question", *table["input"].to_list()), rows),
            "",
        ]
    return "\n".join(lines)


def _link_outcome(outcome: str) -> str:
    """Return the cell of an answered or refused question."""
    return "✓" if outcome == "works" else f"[{outcome}](messages.md#{outcome})"


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
    summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]
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
    "reference/limits.md": list_limits,
    "reference/what-composes.md": list_compositions,
    "reference/gpus.md": list_gpus,
    "reference/gpu-accuracy.md": list_gpu_accuracy,
    "reference/clusters.md": list_clusters,
}
"""Generated pages, and the functions that return them."""
