"""Write Markdown."""

from collections.abc import Iterable, Sequence


def format_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    for row in rows:
        cells = (" ".join(str(cell).split()).replace("|", "\\|").replace("``", "`") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return lines
