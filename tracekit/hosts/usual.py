"""Which hosts are usual beside a GPU, and how far they differ."""

import math
import re
from dataclasses import dataclass
from functools import cache
from math import hypot
from pathlib import Path
from statistics import NormalDist

import polars as pl

from predictors import Gpu, load_gpu

MACHINES = Path(__file__).with_name("machines.csv")
"""Hosts of public traces and our own, by `python -m tests.validation.fit_hosts`, with their sources."""
OLDEST_YEAR = 2022
"""Recordings before it have slower profilers: PyTorch's of 2021 takes four times as long for an op."""
NEWER_HOST_PCIE_GEN = 4
"""PCI Express generation that tells a host of 2019 or later."""
UNLIKE_WEIGHT = 0.25
"""What a machine counts of the other era, or of the other of servers and desktops: chosen, for few are known."""
MIN_RUN_SPREAD = 0.15
"""Least standard deviation, as a logarithm, among runs on one machine: of the five with several runs in machines.csv
two have 0.25 and 0.34, virtual machines whose speed changes within minutes, three 0.01 to 0.14."""
INTERVAL_ENDS = (0.05, 0.95)
"""Ends of a 90 % interval."""


@dataclass(frozen=True, slots=True)
class HostMixture:
    """A distribution of hosts' log speeds: one normal distribution for each machine.

    Attributes:
        weights: What each machine counts.
        means: Mean log speed of its runs.
        spreads: Standard deviation of these.
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    spreads: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean log speed."""
        return sum(weight * mean for weight, mean in zip(self.weights, self.means, strict=True)) / sum(self.weights)

    def add_machine(self, mean: float, weight: float = 1.0) -> "HostMixture":
        """Add a machine whose runs differ by `MIN_RUN_SPREAD`."""
        return HostMixture((*self.weights, weight), (*self.means, mean), (*self.spreads, MIN_RUN_SPREAD))

    def find_quantile(self, share: float, error: float = 0.0) -> float:
        """Find the log speed that a share of hosts doesn't reach.

        Args:
            share: Between 0 and 1.
            error: Standard deviation of an error of the log speed.
        """
        machines = [
            NormalDist(mean, max(hypot(spread, error), EXACT_SPREAD))
            for mean, spread in zip(self.means, self.spreads, strict=True)
        ]
        whole = sum(self.weights)
        low, high = (pick(one.inv_cdf(share) for one in machines) for pick in (min, max))
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            below = sum(weight * one.cdf(middle) for weight, one in zip(self.weights, machines, strict=True)) / whole
            low, high = (middle, high) if below < share else (low, middle)
        return (low + high) / 2


BISECTIONS = 50
EXACT_SPREAD = 1e-9
"""Of a machine whose speed is told: a distribution has some width."""


@dataclass(frozen=True, slots=True)
class UsualHost:
    """The distribution of hosts beside a GPU.

    Attributes:
        speed: Likely speed, as a multiple of the reference host's: half of the hosts are faster.
        low: Low end of the 90 % interval.
        high: High end.
        machines: Known machines that it is made of.
        mixture: The distribution.
    """

    speed: float
    low: float
    high: float
    machines: int
    mixture: HostMixture

    @classmethod
    def from_mixture(cls, mixture: HostMixture) -> "UsualHost":
        """Make it of a distribution."""
        low, speed, high = (
            math.exp(mixture.find_quantile(share)) for share in (INTERVAL_ENDS[0], 0.5, INTERVAL_ENDS[1])
        )
        return cls(speed, low, high, len(mixture.weights), mixture)


@cache
def find_usual_host(gpu: Gpu) -> UsualHost:
    """Find the distribution of hosts beside a GPU.

    It is made of all known machines with GPUs of the same vendor, whose software and profiler differ from others'; of
    a vendor without any, of all machines. Machines of another era or kind count less.
    """
    machines = load_machines()
    known = [load_gpu(slug) for slug in machines["gpu"]]
    alike = [one.vendor == gpu.vendor for one in known]
    chosen = alike if any(alike) else [True] * len(known)
    rows = [
        (_weigh_likeness(one, gpu), mean, max(spread, MIN_RUN_SPREAD))
        for one, mean, spread, is_chosen in zip(known, machines["log_speed"], machines["spread"], chosen, strict=True)
        if is_chosen
    ]
    weights, means, spreads = zip(*rows, strict=True)
    return UsualHost.from_mixture(HostMixture(weights, means, spreads))


def _weigh_likeness(one: Gpu, other: Gpu) -> float:
    """Return what a machine with one GPU counts for another: by the hosts' era, and whether they are desktops."""
    is_other_era = (one.pcie_gen >= NEWER_HOST_PCIE_GEN) != (other.pcie_gen >= NEWER_HOST_PCIE_GEN)
    return float(UNLIKE_WEIGHT ** (is_other_era + (one.is_consumer != other.is_consumer)))


@cache
def load_machines() -> pl.DataFrame:
    """Load the machines that count: ``gpu``, ``machine``, ``log_speed``, ``spread`` and what else is told."""
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
        spread: Standard deviation among these, as a logarithm.
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
