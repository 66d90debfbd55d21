"""Hooks of mkdocs: generate the reference pages, and publish the measured tables of tests/validation/results."""

import os
import re
import tomllib
from pathlib import Path

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tracekit.cli.app import app

ROOT = Path(__file__).parents[1]
RESULTS = Path("tests/validation/results")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def list_commands() -> str:
    """Return the reference page of the command line, from typer."""
    group = typer.main.get_command(app)
    lines = ["# Command line", ""]
    for name, command in sorted(getattr(group, "commands", {}).items()):
        context = typer.Context(command, info_name=f"tracekit {name}")
        lines += [f"## tracekit {name}", "", "```text", command.get_usage(context), "```", ""]
        lines += [re.sub(r"[\b]", "", command.help or ""), "", "| option | meaning |", "|---|---|"]
        for parameter in command.params:
            is_option = parameter.param_type_name == "option"
            label = ", ".join(parameter.opts) if is_option else str(parameter.name).upper()
            text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
            lines.append(f"| `{label}` | {text} |")
        lines.append("")
    return "\n".join(lines)


def list_files(title: str, folder: str, command: str) -> str:
    """Return a reference page with a row for each data file of a folder."""
    lines = [
        f"# {title}",
        "",
        f"`{command} NAME` shows every figure with its source.",
        "",
        "| name | file |",
        "|---|---|",
    ]
    for path in sorted((ROOT / folder).glob("*.toml")):
        name = tomllib.loads(path.read_text()).get("name", path.stem)
        lines.append(f"| {name} | `{path.name}` |")
    return "\n".join(lines) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the measured tables to the site."""
    pages = {
        "reference/cli.md": list_commands(),
        "reference/python.md": "# Python\n\n::: tracekit\n",
        "reference/gpus.md": list_files("Known GPUs", "predictors/gpus", "tracekit gpus"),
        "reference/clusters.md": list_files("Known clusters", "tracekit/comm/clusters", "tracekit clusters"),
    }
    pages |= {f"results/{path.name}": path.read_text() for path in sorted((ROOT / RESULTS).glob("*.md"))}
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ to the published tables, or leave their text alone."""
    here = page.file.src_uri
    source = str(RESULTS / Path(here).name) if here.startswith("results/") else f"docs/{here}"

    def replace(match: re.Match[str]) -> str:
        label, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match.group(0)
        full = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if full.startswith("docs/"):
            site = full.removeprefix("docs/")
        elif full.startswith(f"{RESULTS}/"):
            site = f"results/{Path(full).name}"
        else:
            return label
        relative = os.path.relpath(site, os.path.dirname(here) or ".")
        return f"[{label}]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(replace, markdown)
