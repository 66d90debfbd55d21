"""Which host is usual beside a GPU, and how far hosts differ."""

import math
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
