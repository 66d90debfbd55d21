"""The hosts that traces told the speed of, by name."""

import re
from dataclasses import dataclass
from functools import cache

import polars as pl

from tracekit.hosts.usual import MACHINES

MIN_CHARS = 3
"""Of a part of a name that stands for it."""


@dataclass(frozen=True, slots=True)
class KnownHost:
    """A host whose speed traces told.

    Attributes:
        slug: Its name.
        gpu: The GPU beside it.
        speed: A multiple of the reference host's speed.
        jobs: Traces that tell it.
        spread: Median deviation of these, as a logarithm.
        year: When they were recorded.
        source: Where they are from.
    """

    slug: str
    gpu: str
    speed: float
    jobs: int
    spread: float
    year: int
    source: str


@cache
def list_hosts() -> tuple[KnownHost, ...]:
    """List the known hosts, the fastest first."""
    table = pl.read_csv(MACHINES).sort("speed", descending=True)
    return tuple(
        KnownHost(
            re.sub(r"[^a-z0-9]+", "-", row["machine"].lower()).strip("-"),
            *(row[name] for name in ("gpu", "speed", "jobs", "spread", "year", "source")),
        )
        for row in table.iter_rows(named=True)
    )


def find_host(name: str) -> KnownHost | None:
    """Find a known host by its name, or by a part of it that no other host's name has."""
    wanted = name.strip().lower()
    exact = [host for host in list_hosts() if host.slug == wanted]
    alike = exact or [host for host in list_hosts() if len(wanted) >= MIN_CHARS and wanted in host.slug]
    return alike[0] if len(alike) == 1 else None
