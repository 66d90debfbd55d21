"""Name many targets in a sentence."""

from collections.abc import Sequence

from tracekit.messages import Value
from tracekit.messages.predictions import MORE_TARGETS


def name_some(names: Sequence[str], most: int) -> list[Value]:
    """Return the names; of more than ``most`` of them the first, and how many more there are."""
    left = len(names) - most
    return [*names[:most], MORE_TARGETS(targets=left)] if left > 0 else [*names]
