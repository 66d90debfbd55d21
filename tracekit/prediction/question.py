"""What a prediction is to decide: by what targets are ranked, and how long the work runs."""

from dataclasses import dataclass
from enum import StrEnum

from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.numbers import parse_number
from tracekit.prediction.batch import StepBatch

AMOUNT_FACTORS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
"""Factors of the letters behind an amount, in lower case."""
MAX_AMOUNT = 1e18


class RankBy(StrEnum):
    """What targets are ranked by, for equal work."""

    TIME = "time"
    DOLLARS = "dollars"
    TOKENS_PER_DOLLAR = "tokens-per-dollar"
    ENERGY = "energy"

    @property
    def needs_prices(self) -> bool:
        """Whether it ranks by what work costs; tokens for a dollar have the order of dollars for tokens."""
        return self in (RankBy.DOLLARS, RankBy.TOKENS_PER_DOLLAR)


@dataclass(frozen=True, slots=True)
class WholeRun:
    """How much work is to be done.

    Attributes:
        amount: Number of units.
        unit: ``steps`` as traced, ``tokens`` or ``samples``.
    """

    amount: float
    unit: str

    def count_steps(self, batch: StepBatch | None) -> float:
        """Return the number of traced steps that do the work.

        Args:
            batch: What the job processes in a traced step.

        Raises:
            RequestError: The trace doesn't tell how many of these units a step has.
        """
        if self.unit == "steps":
            return self.amount
        if batch is None:
            raise RequestError(messages.RUN_UNIT_UNKNOWN(unit=self.unit))
        if batch.unit != self.unit:
            raise RequestError(messages.RUN_UNIT_DIFFERS(unit=self.unit, counted=batch.unit))
        return self.amount / batch.size


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be decided.

    Attributes:
        rank_by: What targets are ranked by; None for dollars where all targets have a price, else time.
        whole_run: The work for which time and dollars are told; None for none.
        critical_batch: Gradient noise scale, by which other batches need other amounts of work; None where all need
            the same.
    """

    rank_by: RankBy | None = None
    whole_run: WholeRun | None = None
    critical_batch: float | None = None

    @property
    def needs_prices(self) -> bool:
        """Whether targets are asked to be ranked by what work costs."""
        return self.rank_by is not None and self.rank_by.needs_prices

    def resolve(self, *, is_priced: bool) -> RankBy:
        """Return what targets are ranked by.

        Args:
            is_priced: Whether all targets have a price.
        """
        return self.rank_by or (RankBy.DOLLARS if is_priced else RankBy.TIME)


DEFAULT_QUESTION = Question()
"""What is decided unless something else is asked."""


def parse_amount(text: str) -> float | None:
    """Parse an amount such as ``300k``, ``2B`` or ``1e9``; None if it is none, or zero."""
    text = text.strip().replace(",", "").replace("_", "")
    factor = AMOUNT_FACTORS.get(text[-1:].lower(), 1.0)
    number = parse_number(text[:-1] if factor != 1 else text)
    return number * factor if number is not None and 0 < number * factor <= MAX_AMOUNT else None
