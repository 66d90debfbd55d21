"""Check cases, and keep those that break a promise."""

import hashlib
import time
from math import inf
from pathlib import Path
from typing import Any

from tests.fuzz.target import BrokenPromiseError, Target


class Checker:
    """Checks cases until the time is over, and passes over promises that were found broken already.

    Args:
        target: What is fuzzed.
        seconds: The time.

    Attributes:
        checked: Number of cases checked.
    """

    def __init__(self, target: Target, seconds: float = inf) -> None:
        self.checked = 0
        self._target, self._end = target, time.monotonic() + seconds
        self._known: set[str] = set()
        self._found: tuple[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._end

    def check(self, case: Any) -> None:
        """Check a case.

        Raises:
            Exception: It breaks a promise that wasn't known to be broken.
        """
        if self.is_over:
            return
        self.checked += 1
        try:
            self._target.check(case)
        except Exception as error:
            promise = error.promise if isinstance(error, BrokenPromiseError) else repr(error)[:200]
            if promise in self._known:
                return
            self._found = promise, case
            raise

    def keep_found(self) -> Path:
        """Keep the last case that broke a promise, and pass over that promise from now on."""
        assert self._found is not None
        promise, case = self._found
        self._known.add(promise)
        return self._target.keep(case, f"found-{hashlib.sha256(promise.encode()).hexdigest()[:8]}")
