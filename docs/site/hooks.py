"""Hooks of mkdocs: add the generated pages, and the tables and notes of tests/validation, to the site."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.site.accuracy import check_blocks
from docs.site.json_schema import SCHEMA_FILE, write_schema
from docs.site.pages import PAGES, ROOT

VALIDATION = Path("tests/validation")
FOLDERS = ("notes", "results")
"""Of the validation: notes are written by hand, results by studies."""
SEARCH: dict[str, dict[str, Any]] = {
    **{folder: {"exclude": True} for folder in FOLDERS},
    "how-to": {"boost": 2},
    "tutorial": {"boost": 2},
}
"""By folder: the site's search leads to what users ask, and not to tables of studies."""
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the tables and notes of the validation."""
    check_blocks()
    pages = {name: generate() for name, generate in PAGES.items()} | {SCHEMA_FILE: write_schema()}
    validation = ROOT / VALIDATION
    written = [path for folder in FOLDERS for path in sorted((validation / folder).rglob("*.md"))]
    pages |= {str(path.relative_to(validation)): path.read_text() for path in written}
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ to the published ones, or leave their text alone; weigh the page in the search."""
    here = page.file.src_uri
    page.meta.setdefault("search", SEARCH.get(here.partition("/")[0], {}))
    source = f"{VALIDATION}/{here}" if here.partition("/")[0] in FOLDERS else f"docs/{here}"

    def replace(match: re.Match[str]) -> str:
        label, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match.group(0)
        full = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if full.startswith("docs/"):
            site = full.removeprefix("docs/")
        elif full.startswith(tuple(f"{VALIDATION}/{folder}/" for folder in FOLDERS)):
            site = full.removeprefix(f"{VALIDATION}/")
        else:
            return label
        relative = os.path.relpath(site, os.path.dirname(here) or ".")
        return f"[{label}]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(replace, markdown)
