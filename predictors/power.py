"""Predict what a GPU draws while it runs a kernel, and how far a power limit slows it down.

A board's power is its idle power, what any running kernel adds, and what arithmetic and memory traffic add by how much
of their peaks a kernel uses, at most the board's limit::

    fraction of the limit = idle + running + compute * (FLOP/s over peak) + memory * (bytes/s over bandwidth)

Kernels not much longer than their launch add less (``LAUNCH_US``).

For example, a GEMM at 70 % of the tensor cores' peak and 10 % of the bandwidth would draw 0.19 + 0.41 + 0.77 + 0.04 =
1.4 times the limit: it runs at the limit, with a lower clock. The constants are shares of the limit, the same for all
GPUs; ``power.toml`` says what they were fitted to and how far off they are on a GPU left out.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.errors import WeightsError
from predictors.given_files import read_toml
from predictors.hardware import Hardware
from predictors.model import KernelsByLaw

POWER_FILE = Path(__file__).parent / "weights" / "power.toml"
LAUNCH_US = 6.0
"""A kernel of this time adds half of what a long one does: while it is launched and drains, the board is nearly idle.
Kernels of 4 to 75 us that `make on-gpu` held on an H100 and an H200 follow it."""
SHARPNESS = 10.0
"""How sharply the draw bends into the limit."""
UNKNOWN_WORK_HALF_WIDTH = 0.5
"""Half-width, as a logarithm, of the interval of a kernel without a shape. It rests on one job: decoding in a CUDA
graph draws 1.4 to 1.5 times less than predicted on an H100 and an H200."""
MIN_SM_WATTS, MAX_WATTS_PER_TFLOPS = 4.0, 1.0
"""Of boards whose clock under load is known: 5.3 to 8.1 W for each SM and 0.4 to 0.7 W for each TFLOP/s in bf16."""
MIN_CLOCK_FRACTION = 0.2
"""Of the clock that a limit is believed to lower it to: Zeus's lowest limits made steps 4 times as long."""


@dataclass(frozen=True)
class PowerLaw:
    """What adds to a GPU's draw, as fractions of its board's power limit.

    Attributes:
        idle: Draw of a GPU between the kernels of a job.
        running: What any running kernel adds.
        compute: What arithmetic at the peak rate adds.
        memory: What traffic at the peak bandwidth adds.
        unknown_work: What the work of a kernel without a shape adds.
        half_width: Half-width, as a logarithm, of the 90 % interval of the draw of many kernels.
        half_width_elsewhere: The same on a GPU of an architecture whose draw was not fitted.
        architectures: Those whose draw was fitted.
        clock_exponent: Draw above idle grows with the clock to this power.
        clock_knee: Fraction of the clock below which the voltage falls no further, so that the draw is linear.
        cap_half_width: Half-width, as a logarithm, of the 90 % interval of the time under a power limit.
    """

    idle: float
    running: float
    compute: float
    memory: float
    unknown_work: float
    half_width: float
    half_width_elsewhere: float
    architectures: tuple[str, ...]
    clock_exponent: float
    clock_knee: float
    cap_half_width: float

    def get_half_width(self, architecture: str) -> float:
        """Return the half-width of the interval on a GPU's architecture."""
        return self.half_width if architecture in self.architectures else self.half_width_elsewhere

    def compute_draw(self, compute: Floats, memory: Floats, time_us: Floats) -> Floats:
        """Return the draw while kernels run, as fractions of the limit; NaN where the time is.

        ``compute`` is FLOP/s over the peak rate, ``memory`` bytes/s over the bandwidth; NaN where the work is unknown.
        """
        return limit_draw(self.compute_demand(compute, memory, time_us))

    def compute_demand(self, compute: Floats, memory: Floats, time_us: Floats) -> Floats:
        """Return the same as if there were no limit: with more than 1, a board lowers its clock."""
        work = self.compute * np.minimum(compute, 1.0) + self.memory * np.minimum(memory, 1.0)
        work = np.where(np.isnan(work), self.unknown_work, work)
        return np.asarray(self.idle + (self.running + work) * time_us / (time_us + LAUNCH_US))

    def compute_slowdown(self, draw: Floats, cap: float) -> Floats:
        """Return how many times as long kernels take under a limit, in which the clock falls until they fit.

        ``draw`` without that limit, and the limit ``cap``, are fractions of the board's own.
        """
        above = np.fmax(draw - self.idle, 1e-9)
        left = np.clip((cap - self.idle) / above, 0.0, 1.0)
        at_knee = self.clock_knee**self.clock_exponent
        clock = np.where(left >= at_knee, left ** (1 / self.clock_exponent), self.clock_knee * left / at_knee)
        return np.asarray(1.0 / np.fmax(clock, MIN_CLOCK_FRACTION))

    def compute_power_fraction(self, clock: float) -> float:
        """Return the power above idle at a fraction of the clock, as a fraction of that at the full one."""
        at_knee = max(clock, self.clock_knee) ** self.clock_exponent
        return float(at_knee * min(clock / self.clock_knee, 1.0))

    def compute_traced_slowdown(self, demand: float) -> float:
        """Return how many times as long kernels took than at the full clock, from what their own times demand.

        Kernels that are ``s`` times as slow seem to demand ``s`` times less: with ``D`` from the slow times, the full
        clock would demand ``idle + s (D - idle)``, whose slowdown is ``s`` itself. Hence ``s ** (exponent - 1) = (D -
        idle) / (1 - idle)``, at most what the clock's knee allows: below it, the demand no longer tells the clock.

        ``demand`` is the mean of the kernels as they ran, as a fraction of the board's limit.
        """
        above = max((demand - self.idle) / (1.0 - self.idle), 1.0)
        return float(min(above ** (1.0 / (self.clock_exponent - 1.0)), 1.0 / self.clock_knee))

    def knows_clock_of(self, gpu: Hardware) -> bool:
        """Whether a step's demand tells the clock that a GPU keeps.

        It was measured on Hopper and Blackwell in data centres. An A100 keeps its clock; a board with little power for
        its size, such as an H100 PCIe, runs slower in the short runs that the laws were fitted to as well; an H20 has
        more power than its matrix units can use.
        """
        is_roomy = gpu.gpu.tdp_w >= MIN_SM_WATTS * gpu.sms
        is_needed = gpu.gpu.tdp_w <= MAX_WATTS_PER_TFLOPS * gpu.get_tflops("bf16")
        return gpu.architecture in self.architectures and is_roomy and is_needed


def limit_draw(demand: Floats) -> Floats:
    """Return what boards draw that demand so much, both as fractions of the limit."""
    return np.asarray(demand / (1.0 + demand**SHARPNESS) ** (1.0 / SHARPNESS))


@functools.cache
def load_power_law(path: Path = POWER_FILE) -> PowerLaw:
    """Load the fitted law.

    Raises:
        WeightsError: The file isn't readable.
    """
    try:
        table = read_toml(path)
        return PowerLaw(**table["law"] | {"architectures": tuple(table["law"]["architectures"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"no readable {path.name} in {path.parent}: {error}") from error


def compute_demand_w(kernels: KernelsByLaw, row: Ints, time_us: Floats, gpu: Hardware) -> Floats:
    """Predict what kernels would draw on a board without a power limit, in watts; NaN where the time is.

    Kernels without a shape draw what others do on average. Collectives count as running, without any work; copies over
    a link add nothing.

    ``kernels`` are distinct ones as they run on the GPU; ``row`` is the row of the one that each launch is of.
    """
    law = load_power_law()
    flops, moved = kernels.work
    is_collective = kernels.family.is_in("collective")
    full_us = (flops / (kernels.dtype.map(gpu.get_tflops) * 1e6), moved / (gpu.bandwidth_gbps * 1e3))
    with np.errstate(divide="ignore", invalid="ignore"):
        compute, memory = (np.where(is_collective, 0.0, us)[row] / time_us for us in full_us)
    demand = law.compute_demand(compute, memory, np.where(kernels.is_link_copy[row], 0.0, time_us))
    return np.asarray(gpu.gpu.tdp_w * np.where(np.isnan(time_us), np.nan, demand))


def limit_power_w(demand_w: Floats, gpu: Hardware) -> Floats:
    """Return what a board draws that kernels demand so much of, in watts; at most its limit."""
    return gpu.gpu.tdp_w * limit_draw(demand_w / gpu.gpu.tdp_w)
