"""Write Markdown."""

import re
from collections.abc import Iterable, Sequence


def format_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    for row in rows:
        cells = (" ".join(str(cell).split()).replace("|", "\\|").replace("``", "`") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def make_anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site name it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text.lower()).strip())
