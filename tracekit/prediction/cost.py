"""Parse GPU prices."""

from collections.abc import Sequence

from tracekit.errors import TracekitError


def parse_prices(pairs: Sequence[str]) -> dict[str, float]:
    """Parse dollars for an hour of one GPU, by its name as written.

    Args:
        pairs: Texts such as ``h100-sxm=2.49``.

    Raises:
        TracekitError: A text isn't a name and a number, or a name has two prices.
    """
    prices: dict[str, float] = {}
    for pair in pairs:
        name, _, dollars = (part.strip() for part in pair.rpartition("="))
        if not name or not dollars.replace(".", "", 1).isdecimal():
            raise TracekitError(f"{pair!r}: write it as h100-sxm=2.49")
        add_price(prices, name, float(dollars))
    return prices


def add_price(prices: dict[str, float], name: str, dollars: float) -> None:
    """Add a price.

    Raises:
        TracekitError: The GPU already has another price.
    """
    if prices.setdefault(name, dollars) != dollars:
        raise TracekitError(f"{name} has two prices, {prices[name]:g} and {dollars:g} dollars.", "Give it one.")
