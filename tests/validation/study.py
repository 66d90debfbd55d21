"""What studies share: their inputs and their tables."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


class MissingInputError(Exception):
    """An input of a study isn't on this machine; the message says how to name it."""


def find_real_traces() -> Path:
    """Return the folder of real traces.

    Raises:
        MissingInputError: ``TRACEKIT_REAL_TRACES`` isn't set.
    """
    folder = os.environ.get("TRACEKIT_REAL_TRACES")
    if not folder:
        raise MissingInputError("set TRACEKIT_REAL_TRACES to the folder of real traces")
    return Path(folder)


def format_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table; the first column is text, the others are numbers."""
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headings, rule, *rows))
