"""Parse and resolve GPU prices."""

import re
from collections.abc import Mapping, Sequence
from math import inf
from numbers import Real
from types import MappingProxyType

from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.numbers import NUMBER_PATTERN
from tracekit.prediction.targets import resolve_gpu_name

PRICE_PATTERN = re.compile(rf"(?P<name>[^=]*[^=\s][^=]*)=\s*(?P<dollars>{NUMBER_PATTERN})\s*")
NO_PRICES: Mapping[str, float] = MappingProxyType({})


def parse_prices(pairs: Sequence[str]) -> dict[str, float]:
    """Parse dollars for an hour of one GPU, by its name as written.

    Args:
        pairs: Texts such as ``h100-sxm=2.49``.

    Raises:
        RequestError: A text isn't a name and a number, or a name has two prices.
    """
    prices: dict[str, float] = {}
    for pair in pairs:
        found = PRICE_PATTERN.fullmatch(pair)
        if not found:
            raise RequestError(messages.PRICE_NOT_A_PAIR(price=pair))
        add_price(prices, found["name"].strip(), float(found["dollars"]))
    return prices


def add_price(prices: dict[str, float], name: str, dollars: float) -> None:
    """Add a price.

    Raises:
        RequestError: The GPU already has another price.
    """
    if prices.setdefault(name, dollars) != dollars:
        raise RequestError(messages.PRICES_DIFFER(gpu=name, first=prices[name], second=dollars))


def resolve_prices(prices: Mapping[str, float]) -> dict[str, float]:
    """Return prices by the canonical names of their GPUs.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
        ClusterError: A name is a cluster's instead of a GPU's.
        RequestError: One is negative or no number, or a GPU has two.
    """
    for name, dollars in prices.items():
        if not isinstance(dollars, Real) or isinstance(dollars, bool) or not 0 <= dollars < inf:
            raise RequestError(messages.PRICE_NOT_DOLLARS(gpu=name, given=repr(dollars)))
    by_slug: dict[str, float] = {}
    for name, dollars in prices.items():
        add_price(by_slug, resolve_gpu_name(name).gpu.slug, dollars)
    return by_slug
