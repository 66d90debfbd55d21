"""What stands on a script's command line."""

import sys


def given(doc: str | None, least: int, most: int | None = None) -> list[str]:
    """The words after the script's name; the script ends with its usage line if there aren't as many as it takes.

    Args:
        doc: The script's docstring, whose third line is its usage.
        least: How many words it takes.
        most: The most that it takes; None for any number.
    """
    words = sys.argv[1:]
    if len(words) < least or (most is not None and len(words) > most):
        raise SystemExit(f"usage: {(doc or '').splitlines()[2]}")
    return words
