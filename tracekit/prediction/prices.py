"""Prices as people write them."""

from collections.abc import Sequence

from tracekit.errors import TracekitError


def parse_prices(pairs: Sequence[str]) -> dict[str, float]:
    """Dollars for an hour of one GPU, by its name as written.

    Args:
        pairs: Such as ``h100-sxm=2.49``.

    Raises:
        TracekitError: One isn't a name and a number.
    """
    prices = {}
    for pair in pairs:
        name, _, dollars = (part.strip() for part in pair.rpartition("="))
        if not name or not dollars.replace(".", "", 1).isdecimal():
            raise TracekitError(f"{pair!r}: write it as h100-sxm=2.49")
        prices[name] = float(dollars)
    return prices
