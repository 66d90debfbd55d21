"""Collectives that were measured on a cluster, as its file gives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from tracekit.comm.calls import BUS_FACTOR, bus_factor
from tracekit.comm.errors import ClusterError

KINDS: Mapping[str, type | tuple[type, ...]] = {
    "collective": str,
    "bytes": int,
    "ranks": int,
    "nodes": int,
    "dtype": str,
    "time_us": (int, float),
    "busbw_gbps": (int, float),
}

LEAST = {"ranks": 1}
"""What a number must be above, where it isn't 0."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One collective as nccl-tests measures it.

    Attributes:
        collective: Which, a key of ``BUS_FACTOR``.
        bytes: Of the whole buffer.
        ranks: That took part.
        time_us: That it took, in microseconds.
        nodes: That the ranks sat on, evenly; None where they filled one node after the other.
        dtype: Of the buffer.
    """

    collective: str
    bytes: int
    ranks: int
    time_us: float
    nodes: int | None = None
    dtype: str = "float"


def parse(entry: Any, where: str) -> Measured:
    """The collective that an entry of a file's ``[[measured]]`` describes.

    Args:
        entry: ``collective``, ``bytes``, ``ranks``, one of ``time_us`` and ``busbw_gbps`` (nccl-tests' bus bandwidth,
            1e9 bytes/s), and where they matter ``nodes`` and ``dtype``.
        where: The file, for errors.

    Raises:
        ClusterError: A key is missing, unknown or wrong.
    """
    _check(entry, where)
    collective, size, ranks = entry["collective"], entry["bytes"], entry["ranks"]
    if "time_us" in entry:
        time_us = float(entry["time_us"])
    else:
        time_us = size * bus_factor(collective, float(ranks)) / entry["busbw_gbps"] / 1e3
    return Measured(collective, size, ranks, time_us, entry.get("nodes"), entry.get("dtype", "float"))


def _check(entry: Any, where: str) -> None:
    wanted = "[[measured]] needs collective, bytes, ranks, and time_us or busbw_gbps"
    if not isinstance(entry, dict):
        raise ClusterError(f"{where}: {wanted}.")
    for key, value in entry.items():
        if key not in KINDS:
            raise ClusterError(f"{where}: [[measured]] has an unknown key {key!r}; known are {', '.join(KINDS)}.")
        if isinstance(value, bool) or not isinstance(value, KINDS[key]):
            raise ClusterError(f"{where}: {key} of [[measured]] can't be {value!r}.")
        if isinstance(value, int | float) and not LEAST.get(key, 0) < value < inf:
            raise ClusterError(f"{where}: {key} of [[measured]] can't be {value!r}.")
    if {"collective", "bytes", "ranks"} - entry.keys() or ("time_us" in entry) == ("busbw_gbps" in entry):
        raise ClusterError(f"{where}: {wanted}, of the two one.")
    if entry["collective"] not in BUS_FACTOR:
        raise ClusterError(f"{where}: unknown collective {entry['collective']!r}; known are {', '.join(BUS_FACTOR)}.")
