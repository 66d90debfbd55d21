"""One test over a table, which names each row that fails."""

from collections.abc import Callable, Iterable


def find_failures(check: Callable[..., object], rows: Iterable[tuple[object, ...]]) -> dict[tuple[object, ...], str]:
    """Check every row of a table; return why those that fail do, which is to be nothing."""
    failures = {}
    for row in rows:
        try:
            check(*row)
        except Exception as error:
            failures[row] = f"{type(error).__name__}: {error}"
    return failures
