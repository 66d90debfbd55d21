"""Parse numbers that users write: Python takes underscores, blanks, "nan" and the digits of all scripts too."""

import re

NUMBER_PATTERN = r"[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15}"
"""A number without sign and exponent."""
_SIGNED = re.compile(rf"[+-]?(?:{NUMBER_PATTERN})(?:[eE][+-]?[0-9]{{1,2}})?")


def parse_number(text: str) -> float | None:
    """Parse a number with an optional exponent; ``None`` for any other text.

    Args:
        text: With blanks around it or without.
    """
    return float(text) if _SIGNED.fullmatch(text.strip(" ")) else None
