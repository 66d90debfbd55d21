"""Errors of clusters."""

import difflib
from collections.abc import Iterable
from typing import Self

from tracekit.errors import TracekitError
from tracekit.messages import layouts as messages


class ClusterError(TracekitError):
    """An unknown cluster name, a wrong description, or a collective that doesn't fit on the cluster."""


class UnknownClusterError(ClusterError):
    """A name that describes no cluster."""

    @classmethod
    def from_name(cls, name: str, known: Iterable[str]) -> Self:
        """Build the error for a name.

        Args:
            name: The name that was asked for.
            known: Names to suggest from.
        """
        close = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.5)
        if not close:
            return cls(messages.CLUSTER_UNKNOWN(name=name))
        return cls(messages.CLUSTER_MISTYPED(name=name, similar=close))
