"""Read the collectives that were measured on a cluster from the cluster's file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracekit.comm.collective_calls import BUS_FACTOR, compute_bus_factor
from tracekit.comm.errors import ClusterError
from tracekit.messages import layouts as messages

KEY_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "collective": str,
    "bytes": int,
    "ranks": int,
    "nodes": int,
    "dtype": str,
    "time_us": (int, float),
    "busbw_gbps": (int, float),
}

EXCLUSIVE_MINIMUM = {"ranks": 1}
"""Exclusive minimum of a number by key; ``MIN_NUMBER`` for all other keys."""
MIN_NUMBER, MAX_NUMBER = 1e-6, 1e15
"""Beyond what any network takes or carries, while quotients of two stay finite."""


@dataclass(frozen=True, slots=True)
class MeasuredCollective:
    """One collective as nccl-tests measures it.

    Attributes:
        collective: Name of the collective, a key of ``BUS_FACTOR``.
        bytes: Size of the whole buffer.
        ranks: Number of ranks.
        time_us: Measured time in us.
        nodes: Nodes that the ranks were spread over evenly; None if the ranks filled one node after the other.
        dtype: Element type of the buffer.
    """

    collective: str
    bytes: int
    ranks: int
    time_us: float
    nodes: int | None = None
    dtype: str = "float"


def parse_measured_entry(entry: Any, where: str) -> MeasuredCollective:
    """Parse one entry of a file's ``[[measured]]``.

    Args:
        entry: ``collective``, ``bytes``, ``ranks``, one of ``time_us`` and ``busbw_gbps`` (nccl-tests' bus bandwidth,
            1e9 bytes/s), and where they matter ``nodes`` and ``dtype``.
        where: The file, for error messages.

    Raises:
        ClusterError: A key is missing, unknown or wrong.
    """
    _check_entry(entry, where)
    collective, size, ranks = entry["collective"], entry["bytes"], entry["ranks"]
    if "time_us" in entry:
        time_us = float(entry["time_us"])
    else:
        time_us = size * compute_bus_factor(collective, float(ranks)) / entry["busbw_gbps"] / 1e3
    return MeasuredCollective(collective, size, ranks, time_us, entry.get("nodes"), entry.get("dtype", "float"))


def _check_entry(entry: Any, where: str) -> None:
    if not isinstance(entry, dict):
        raise ClusterError(messages.MEASURED_INCOMPLETE(path=where))
    for key, value in entry.items():
        if key not in KEY_TYPES:
            raise ClusterError(messages.MEASURED_KEY_UNKNOWN(path=where, key=key, known=list(KEY_TYPES)))
        is_typed = isinstance(value, KEY_TYPES[key]) and not isinstance(value, bool)
        is_number = isinstance(value, int | float)
        if not is_typed or (is_number and not EXCLUSIVE_MINIMUM.get(key, MIN_NUMBER) < value < MAX_NUMBER):
            raise ClusterError(messages.MEASURED_VALUE_INVALID(path=where, key=key, value=f"{value!r:.60}"))
    if {"collective", "bytes", "ranks"} - entry.keys() or ("time_us" in entry) == ("busbw_gbps" in entry):
        raise ClusterError(messages.MEASURED_INCOMPLETE(path=where))
    if entry["collective"] not in BUS_FACTOR:
        raise ClusterError(
            messages.MEASURED_COLLECTIVE_UNKNOWN(path=where, collective=entry["collective"], known=list(BUS_FACTOR))
        )
