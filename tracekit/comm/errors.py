"""Errors of clusters."""

import difflib
from collections.abc import Iterable

from tracekit.errors import TracekitError


class ClusterError(TracekitError):
    """An unknown cluster name, a wrong description, or a collective that doesn't fit on the cluster."""


class UnknownClusterError(ClusterError):
    """A name that describes no cluster.

    Args:
        name: The name that was asked for.
        known: Names to suggest from.
    """

    def __init__(self, name: str, known: Iterable[str]) -> None:
        close = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.5)
        near = f" Did you mean {', '.join(close)}?" if close else ""
        super().__init__(
            f"unknown cluster {name!r}: write it as 8xh100-sxm, as 4x8xh100-sxm@ndr400, or by its name.{near}",
            "`tracekit clusters` lists all.",
        )
