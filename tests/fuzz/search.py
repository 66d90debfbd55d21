"""Search for cases that break a promise: hypothesis makes and shrinks them."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz.checker import Checker
from tests.fuzz.target import Target

BATCH_EXAMPLES = 200


def search(
    cases: SearchStrategy[Any], check: Callable[[Any], None], *, examples: int, seed_number: int, shrink: bool
) -> None:
    """Check random cases, the same for the same seed.

    Args:
        cases: Makes the cases.
        check: Checks a case.
        examples: Number of cases.
        seed_number: The seed.
        shrink: Whether to look for a smaller case that breaks the same promise.

    Raises:
        Exception: A case breaks a promise.
    """

    @settings(
        max_examples=examples,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @seed(seed_number)
    @given(cases)
    def run(case: Any) -> None:
        check(case)

    run()


def search_long(target: Target, seconds: float, seed_number: int | None = None) -> Iterator[tuple[Path, str]]:
    """Search with ever new seeds until the time is over; yield each case found, shrunk and kept, and what it breaks."""
    cases = target.long_cases or target.cases
    checker, chooser = Checker(target, seconds), random.Random(seed_number)
    while not checker.is_over:
        try:
            search(cases, checker.check, examples=BATCH_EXAMPLES, seed_number=chooser.getrandbits(64), shrink=True)
        except Exception as error:
            yield checker.keep_found(), str(error)
    print(f"{target.name}: {checker.checked:,} cases checked")
