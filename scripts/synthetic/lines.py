"""Markdown tables that appear line by line, as their rows take minutes each."""

import sys
from collections.abc import Iterable


def print_table(heading: str, rows: Iterable[str]) -> None:
    """Prints each row as soon as it is there.

    Args:
        heading: The first line, such as ``| job | GPUs |``.
        rows: The others.
    """
    for line in (heading, "|---" * (heading.count("|") - 1) + "|"):
        sys.stdout.write(line + "\n")
    for row in rows:
        sys.stdout.write(row + "\n")
        sys.stdout.flush()
