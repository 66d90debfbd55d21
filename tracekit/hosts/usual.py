"""Which host is usual beside a GPU, and how far hosts differ."""

import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl

from predictors import Gpu

MACHINES = Path(__file__).with_name("machines.csv")
"""Hosts of public traces and our own, by `python -m tests.validation.fit_hosts`, with their sources."""
OLDEST_YEAR = 2022
"""Recordings before it have slower profilers: PyTorch's of 2021 takes four times as long for an op."""
PRIOR_MACHINES = 3.0
"""How many machines of one GPU count as much as those of all."""
HALF_WIDTH_SDS = 1.645
"""Half of a 90 % interval of a normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True)
class UsualHost:
    """The distribution of hosts beside a GPU.

    Attributes:
        speed: Likely speed, as a multiple of the reference host's.
        low: Low end of the 90 % interval.
        high: High end.
        machines: Known machines with that GPU.
    """

    speed: float
    low: float
    high: float
    machines: int


@cache
def find_usual_host(gpu: Gpu) -> UsualHost:
    """Find the usual host beside a GPU.

    The few machines with one GPU are drawn to the mean of all, and differ as much as machines of one GPU do elsewhere.
    """
    machines = load_machines()
    mine = machines.filter(pl.col("gpu") == gpu.slug)["log_speed"]
    everywhere = float(machines["log_speed"].mean())  # type: ignore[arg-type]
    weight = mine.len() / (mine.len() + PRIOR_MACHINES)
    likely = everywhere + weight * (float(mine.mean()) - everywhere) if mine.len() else everywhere  # type: ignore[arg-type]
    spread = float(machines["log_speed"].std()) * math.sqrt(1 + 1 / (mine.len() + PRIOR_MACHINES))  # type: ignore[arg-type]
    low, high = (math.exp(likely + sign * HALF_WIDTH_SDS * spread) for sign in (-1, 1))
    return UsualHost(math.exp(likely), low, high, mine.len())


@cache
def load_machines() -> pl.DataFrame:
    """Load the machines that count: ``gpu``, ``machine``, ``speed``, ``log_speed``, ``year``, ``jobs``, ``source``."""
    table = pl.read_csv(MACHINES).filter(pl.col("year") >= OLDEST_YEAR)
    return table.with_columns(log_speed=pl.col("speed").log())


MIN_CHARS = 3
"""Of a part of a name that stands for it."""


@dataclass(frozen=True, slots=True)
class KnownHost:
    """A host whose speed traces told.

    Attributes:
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
