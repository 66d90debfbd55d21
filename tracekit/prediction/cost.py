"""Parse prices, and find whose they are: a GPU's of the trace or of a target, or a whole cluster's."""

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import date
from math import inf
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any

from predictors import Gpu, PredictorError, resolve_gpu
from predictors.errors import AmbiguousGpuError
from predictors.given_files import describe_failure, read_toml
from tracekit.comm import Cluster, load_cluster
from tracekit.comm.errors import ClusterError
from tracekit.errors import RequestError
from tracekit.format import shorten
from tracekit.messages import Message
from tracekit.messages import requests as messages
from tracekit.messages.reports import PRICE_UNUSED, PRICES_OLD
from tracekit.numbers import NUMBER_PATTERN

PRICE_TABLE = "dollars_an_hour"
TEXT_KEYS = ("currency", "source")
MAX_SHOWN_CHARS = 40
"""Of what is no price."""
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


PRICE_PATTERN = re.compile(
    rf"(?:(?P<name>[^=]*[^=\s][^=]*)=)?\s*\$?\s*(?P<dollars>-?{NUMBER_PATTERN})\s*\$?\s*(?:/\s*h(?:r|our)?)?\s*"
)


@dataclass(frozen=True, slots=True)
class Prices:
    """What an hour of one GPU costs.

    Attributes:
        dollars: By the canonical name of the GPU, or by the display name of a cluster whose GPUs have a price of their
            own.
        date: Day of the file that gave some of them.
        doubts: Warnings about them.
    """

    dollars: Mapping[str, float] = field(default_factory=dict)
    date: str | None = None
    doubts: tuple[Message, ...] = ()

    def find(self, gpu: Gpu | None, cluster: Cluster | None) -> float | None:
        """Return the dollars for an hour of one GPU; None without a price."""
        of_gpu = self.dollars.get(gpu.slug) if gpu else None
        return self.dollars.get(cluster.name, of_gpu) if cluster else of_gpu


@dataclass(frozen=True, slots=True)
class GivenPrices:
    """Prices as a user gives them. Whose they are depends on the GPUs at hand: those of trace and targets.

    Attributes:
        named: Dollars by a GPU's name in any spelling, or for all of a cluster by its name.
        unnamed: Dollars for the GPU of the only target.
        file: A file of prices; those above win.
    """

    named: Mapping[str, float] = field(default_factory=dict)
    unnamed: float | None = None
    file: PriceFile | None = None

    def check(self) -> None:
        """Check amounts and names.

        Raises:
            PredictorError: Neither a GPU nor a cluster has such a name.
            RequestError: A price is negative or no number, or a GPU has two.
        """
        _check_dollars("the target's GPU", 0.0 if self.unnamed is None else self.unnamed)
        for prices in (self.named, self.file.dollars if self.file else {}):
            for name, dollars in prices.items():
                _check_dollars(name, dollars)
            _merge_prices((" or ".join(_read_name(name).owners), dollars) for name, dollars in prices.items())

    def resolve(
        self,
        source: Gpu | None,
        targets: Sequence[Gpu],
        clusters: Sequence[Cluster] = (),
        today: date | None = None,
    ) -> Prices:
        """Find whose prices these are.

        Args:
            source: GPU of the trace.
            targets: GPUs of the targets.
            clusters: Clusters of trace and targets.
            today: The day on which prices of a file are judged; by default today.

        Raises:
            PredictorError: A name may mean several of the GPUs at hand.
            RequestError: A price without a name has several targets, or a GPU has two prices.
        """
        there = sorted({gpu.slug for gpu in targets})
        at_hand = {*there, *([source.slug] if source else []), *(cluster.name for cluster in clusters)}
        if self.unnamed is not None and len(there) != 1:
            first = there[0] if there else "h100-sxm"
            raise RequestError(messages.PRICE_WITHOUT_NAME(price=self.unnamed, targets=len(there), first=first))
        dollars, unused = _assign_prices(self.named, at_hand, source)
        if self.unnamed is not None:
            dollars = _merge_prices([*dollars.items(), (there[0], self.unnamed)])
        doubts: list[Message] = [PRICE_UNUSED(gpus=unused)] if unused else []
        if self.file is None:
            return Prices(dollars, doubts=tuple(doubts))
        filed, _ = _assign_prices(self.file.dollars, at_hand - dollars.keys(), source)
        if not filed:
            return Prices(dollars, doubts=tuple(doubts))
        doubts += self.file.list_doubts(today or date.today())
        return Prices({**filed, **dollars}, self.file.date.isoformat(), tuple(doubts))


UNPRICED = Prices()


def parse_prices(texts: Iterable[str], file: PriceFile | None = None) -> GivenPrices:
    """Parse prices: ``h100-sxm=2.49``, ``H100=$2.49``, or ``2.49`` alone for the only target.

    Args:
        texts: The texts.
        file: Prices of a file.

    Raises:
        RequestError: A text is no price, or a name has two.
    """
    pairs = []
    for text in texts:
        found = PRICE_PATTERN.fullmatch(text)
        if not found:
            raise RequestError(messages.PRICE_NOT_A_PAIR(price=text))
        pairs.append(((found["name"] or "").strip(), float(found["dollars"])))
    named = _merge_prices(pairs)
    return GivenPrices(named, named.pop("", None), file)


def _check_dollars(gpu: str, dollars: object) -> None:
    """Raise where an hour can't cost so much."""
    if isinstance(dollars, bool) or not isinstance(dollars, Real):
        raise RequestError(messages.PRICE_NOT_DOLLARS(gpu=gpu, given=shorten(repr(dollars), MAX_SHOWN_CHARS)))
    try:
        amount = float(dollars)
    except OverflowError:  # a whole number of Python's beyond all floats
        amount = inf
    if not 0 <= amount < inf:
        raise RequestError(messages.PRICE_NOT_DOLLARS(gpu=gpu, given=f"{amount:g}"))


def _merge_prices(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the price of each owner.

    Raises:
        RequestError: One has two.
    """
    prices: dict[str, float] = {}
    for owner, dollars in pairs:
        if prices.setdefault(owner, dollars) != dollars:
            raise RequestError(messages.PRICES_DIFFER(gpu=owner or "target", first=prices[owner], second=dollars))
    return prices


@dataclass(frozen=True, slots=True)
class PricedName:
    """A name that has a price.

    Attributes:
        owners: Whose price may be meant: canonical names of GPUs, or the display name of a cluster.
        gpus: GPUs that the price is for: all of a cluster's.
    """

    owners: tuple[str, ...]
    gpus: int = 1


def _read_name(name: str) -> PricedName:
    """Find whose price may be meant by a name.

    Raises:
        PredictorError: Nothing has that name.
    """
    try:
        found = resolve_gpu(name)
    except AmbiguousGpuError as error:
        return PricedName(error.candidates)
    except PredictorError as unknown:
        try:
            cluster = load_cluster(name, unlike_gpus=True)
        except ClusterError:
            raise unknown from None
        return PricedName((cluster.name,), cluster.gpus)
    return PricedName((found.gpu.slug, *found.others))


def _assign_prices(
    prices: Mapping[str, float], at_hand: AbstractSet[str], source: Gpu | None
) -> tuple[dict[str, float], list[str]]:
    """Return the prices for one GPU by their owners, and the names of those that nothing at hand has.

    Args:
        prices: Dollars by name.
        at_hand: Who may have a price.
        source: GPU of the trace, which is meant by a name that it shares with targets.

    Raises:
        AmbiguousGpuError: A price may be that of several GPUs at hand.
        RequestError: A GPU has two prices.
    """
    assigned, unused = [], []
    for name, dollars in prices.items():
        meant = _read_name(name)
        owners = [owner for owner in meant.owners if owner in at_hand]
        if source and source.slug in owners:
            owners = [source.slug]
        if len(owners) > 1:
            raise AmbiguousGpuError(name, owners)
        if owners:
            assigned.append((owners[0], dollars / meant.gpus))
        else:
            unused.append(name)
    return _merge_prices(assigned), unused
