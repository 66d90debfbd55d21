"""Read a user's file of prices: a date, and dollars for an hour of one GPU.

For example::

    date = 2026-11-01
    source = "contract with a cloud"

    [dollars_an_hour]
    h100-sxm = 2.49
    "A100 SXM 80GB" = 1.29
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from predictors.toml_file import describe_failure, read_toml
from tracekit.errors import RequestError
from tracekit.messages import Message
from tracekit.messages import requests as messages
from tracekit.messages.reports import PRICES_OLD

PRICE_TABLE = "dollars_an_hour"
TEXT_KEYS = ("currency", "source")
MAX_AGE_DAYS = 90
"""Age above which prices are doubted: clouds changed theirs of GPUs several times a year."""


@dataclass(frozen=True, slots=True)
class PriceFile:
    """The prices of a file.

    Attributes:
        date: The day that they are of.
        dollars: Dollars for an hour of one GPU, by its name as written; a cloud's instance counts as a whole.
        currency: What the amounts are in, if it isn't dollars.
        source: Where they are from, in the user's words.
    """

    date: datetime.date
    dollars: Mapping[str, float]
    currency: str | None = None
    source: str | None = None

    def list_doubts(self, today: datetime.date) -> list[Message]:
        """List why the prices may be wrong on a day."""
        days = (today - self.date).days
        return [PRICES_OLD(date=self.date.isoformat(), days=days)] if days > MAX_AGE_DAYS else []


def read_price_file(path: str | Path) -> PriceFile:
    """Read a file of prices.

    Raises:
        RequestError: It can't be read, or has no date or no prices, or other keys.
    """
    try:
        data = read_toml(Path(path))
    except (OSError, ValueError) as error:
        raise RequestError(messages.PRICE_FILE_INVALID(path=str(path), reason=describe_failure(error))) from error
    fault = _find_fault(data)
    if fault:
        raise RequestError(messages.PRICE_FILE_INVALID(path=str(path), reason=fault))
    prices = {name: float(dollars) for name, dollars in data[PRICE_TABLE].items()}
    return PriceFile(data["date"], MappingProxyType(prices), data.get("currency"), data.get("source"))


def _find_fault(data: Mapping[str, Any]) -> str:
    """Return what is wrong with the content; empty if nothing is."""
    if unknown := sorted(data.keys() - {"date", PRICE_TABLE, *TEXT_KEYS}):
        return f"unknown key {unknown[0]!r}; known are date, {', '.join(TEXT_KEYS)} and the table {PRICE_TABLE}"
    if type(data.get("date")) is not datetime.date:
        return "date must be a day, such as 2026-11-01"
    if wrong := [key for key in TEXT_KEYS if not isinstance(data.get(key, ""), str)]:
        return f"{wrong[0]} must be a text"
    prices = data.get(PRICE_TABLE)
    if not isinstance(prices, dict) or not prices:
        return f"the table [{PRICE_TABLE}] must hold a price, such as h100-sxm = 2.49"
    wrong = [name for name, dollars in prices.items() if type(dollars) not in (int, float)]
    return f"the price of {wrong[0]!r} must be a number" if wrong else ""
