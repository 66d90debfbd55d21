"""Parse numbers that users write: Python takes underscores, blanks, "nan" and the digits of all scripts too."""

import re
from collections.abc import Mapping

NUMBER_PATTERN = r"[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15}"
"""A number without sign and exponent."""
_SIGNED = re.compile(rf"[+-]?(?:{NUMBER_PATTERN})(?:[eE][+-]?[0-9]{{1,2}})?")


_QUANTITY = re.compile(rf"\s*(?P<number>{NUMBER_PATTERN})\s*(?P<unit>[a-zA-Z]*)\s*")


def parse_quantity(text: str, units: Mapping[str, float]) -> float | None:
    """Parse a number above zero, with a unit or without; ``None`` for any other text.

    Args:
        text: Such as "1.2 GHz".
        units: Unit in lower case -> its factor.
    """
    found = _QUANTITY.fullmatch(text)
    factor = {"": 1.0, **units}.get(found["unit"].lower()) if found else None
    if found is None or factor is None:
        return None
    return float(found["number"]) * factor or None


def parse_number(text: str) -> float | None:
    """Parse a number with an optional exponent; ``None`` for any other text.

    Args:
        text: With blanks around it or without.
    """
    return float(text) if _SIGNED.fullmatch(text.strip(" ")) else None
