"""A few collectives measured on a cluster -> how much its latencies and rates differ from the model's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.arrays import Bools, Floats
from tracekit.comm.calls import Calls, Links
from tracekit.comm.constants import Constants
from tracekit.comm.law import Names, times

KNOBS = ("latency", "hop", "bandwidth", "network_latency", "network_bandwidth")
SD = np.array([0.3, 0.2, 0.3, 1.0, 0.4])
"""How far machines that were left out of the fit are off in each, as logarithms; the network's by published results."""
KNOWN_SD = np.array([0.05, 0.05, 0.05, 1.0, 0.4])
"""The same of machines whose generation was measured, as siblings are off."""

INSIDE, RCCL, PCIE = 0.08, 0.15, 0.3
BETWEEN_SHORT, BETWEEN_LONG = 0.3, 0.15
"""How far off the model is where latencies and rates are known, as a logarithm: on one node, and between nodes."""
SHORT_BYTES, LONG_BYTES = 2**24, 2**34
"""Of messages between nodes that are missed most and least."""
NOISE = 0.03
"""Of one measurement, as a logarithm."""
FAR = 3.0
"""Difference of sizes or ranks, as a logarithm, over which what the model misses of one says less of another."""
OTHERS = 0.5
"""How alike what it misses of two kinds of collectives is."""

STEP = 1e-2
ITERATIONS, LONGEST_STEP = 6, 0.7
LEAST_US, MOST_US = 1e-6, 1e30
"""One rank takes no time, an algorithm that can't run all time: neither changes with any factor."""


@dataclass(frozen=True, slots=True)
class Places:
    """Collectives, an element each, by what makes the model miss them alike.

    Attributes:
        kind: The collective.
        at: Logarithms of bytes and of ranks, (2, collectives).
        between: Whether they cross nodes.
        missed: How far off the model is, as a logarithm.
    """

    kind: Names
    at: Floats
    between: Bools
    missed: Floats

    @staticmethod
    def of(carried: Sequence[tuple[Calls, Links]]) -> "Places":
        """Where collectives lie, one kind after the other."""
        parts = [_place(calls, links) for calls, links in carried]
        kind, at, between, missed = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
        return Places(kind, at, between, missed)

    def alike(self, other: "Places") -> Floats:
        """Covariance of what the model misses, (own, other's)."""
        far = np.abs(self.at[:, :, None] - other.at[:, None, :]).sum(axis=0)
        kinds = np.where(self.kind[:, None] == other.kind, 1.0, OTHERS)
        same = self.between[:, None] == other.between
        covariance: Floats = same * kinds * np.exp(-far / FAR) * self.missed[:, None] * other.missed
        return covariance


def _place(calls: Calls, links: Links) -> tuple[Names, Floats, Bools, Floats]:
    """The same of one kind, as a tuple."""
    sizes, between = np.maximum(calls.size_bytes, 1), calls.nodes > 1
    long = length(sizes)
    inside = np.where(links.pcie, PCIE, INSIDE if links.capability else RCCL)
    missed = np.where(between, BETWEEN_SHORT ** (1 - long) * BETWEEN_LONG**long, inside)
    return np.full(sizes.shape, calls.collective), np.log(np.stack([sizes, calls.ranks])), between, missed


@dataclass(frozen=True, slots=True)
class Learned:
    """What measurements say of a cluster.

    Attributes:
        offset: (KNOBS,), logarithms of its factors.
        places: Of the measured collectives.
        slopes: (collectives, KNOBS), derivatives of the logarithm of their time.
        weight: (collectives,), what each adds to the logarithm of the time of those like it.
        inverse: (collectives, collectives), of the covariance of what was measured.
        sd: (KNOBS,), how far each factor was expected to be off.
    """

    offset: Floats
    places: Places
    slopes: Floats
    weight: Floats
    inverse: Floats
    sd: Floats

    def times(
        self, calls: Calls, links: Links, constants: Constants, only: str | None = None
    ) -> tuple[Floats, Names, Floats]:
        """Microseconds and algorithm of collectives, as `law.times` gives them, and the standard deviation of the log.

        Infinite between nodes where none between nodes was measured, and on one node likewise.

        Args:
            calls: Collectives.
            links: What carries them.
            constants: Of the model.
            only: The one algorithm that may be chosen; None for all.
        """
        time_us, algorithm = times(calls, *scaled(links, constants, self.offset), only)
        places = Places.of([(calls, links)])
        slopes = slopes_of(lambda offset: times(calls, *scaled(links, constants, offset), only)[0], self.offset)
        alike = places.alike(self.places)
        shared = alike + (slopes * self.sd**2) @ self.slopes.T
        variance = places.missed**2 + slopes**2 @ self.sd**2 - np.einsum("ip,pq,iq->i", shared, self.inverse, shared)
        added = np.where(calls.custom, 0.0, alike @ self.weight)
        sd = np.where(np.isin(places.between, self.places.between), np.sqrt(np.maximum(variance, NOISE**2)), np.inf)
        return time_us * np.exp(added), algorithm, sd


def learn(carried: Sequence[tuple[Calls, Links]], constants: Constants, measured_us: Floats, *, known: bool) -> Learned:
    """The factors that explain measured times best, by Gauss-Newton steps, and what they leave.

    Args:
        carried: Measured collectives with what carries them, a pair for each kind.
        constants: Of the model.
        measured_us: Of all of them, (collectives,), above 0.
        known: Whether nodes of this generation were measured; then the factors are near 1, unless that would surprise.
    """

    def model(offset: Floats) -> Floats:
        return np.concatenate([times(calls, *scaled(links, constants, offset))[0] for calls, links in carried])

    places = Places.of(carried)
    offset = np.zeros(SD.size)
    rest = places.alike(places) + NOISE**2 * np.eye(measured_us.size)
    missed, slopes = np.log(measured_us / model(offset)), slopes_of(model, offset)
    spreads = [KNOWN_SD, SD] if known else [SD]
    sd = min(spreads, key=lambda one: _surprise(missed, rest + (slopes * one**2) @ slopes.T))
    for _ in range(ITERATIONS):
        slopes = slopes_of(model, offset)
        missed = np.log(measured_us / model(offset)) + slopes @ offset
        inverse = np.asarray(np.linalg.inv(rest + (slopes * sd**2) @ slopes.T))
        offset = offset + np.clip(sd**2 * (slopes.T @ inverse @ missed) - offset, -LONGEST_STEP, LONGEST_STEP)
    weight = np.asarray(np.linalg.solve(rest, np.log(measured_us / model(offset))))
    return Learned(offset, places, slopes, weight, inverse, sd)


def _surprise(missed: Floats, covariance: Floats) -> float:
    """-2 log likelihood, but for a constant."""
    return float(missed @ np.linalg.solve(covariance, missed) + np.linalg.slogdet(covariance)[1])


def scaled(links: Links, constants: Constants, offset: Floats) -> tuple[Links, Constants]:
    """A cluster's links and the model's constants with factors on them.

    Args:
        links: Of the cluster, with the scales of the machine that stands for it.
        constants: Of the model.
        offset: (KNOBS,), logarithms of the factors.
    """
    latency, hop, bandwidth, network_latency, network_bandwidth = np.exp(offset).tolist()
    machine, network = links.system, constants.network
    system = replace(
        machine, latency=machine.latency * latency, hop=machine.hop * hop, bandwidth=machine.bandwidth * bandwidth
    )
    between = replace(
        network,
        latency={kind: value * network_latency for kind, value in network.latency.items()},
        efficiency={kind: value * network_bandwidth for kind, value in network.efficiency.items()},
    )
    return replace(links, system=system), replace(constants, network=between)


def slopes_of(model: Callable[[Floats], Floats], offset: Floats) -> Floats:
    """Derivatives of the logarithm of the time, (collectives, KNOBS).

    Args:
        model: Offsets, (KNOBS,) -> microseconds, (collectives,).
        offset: Where.
    """
    steps = STEP * np.eye(offset.size)
    ends = [[np.clip(model(offset + sign * s), LEAST_US, MOST_US) for sign in (1, -1)] for s in steps]
    return np.stack([np.log(more / less) / (2 * STEP) for more, less in ends], axis=1)


def length(size_bytes: Floats) -> Floats:
    """From 0 for messages between nodes that are missed most, being short, to 1 for those missed least.

    Args:
        size_bytes: Of each.
    """
    doublings = np.log2(np.maximum(size_bytes, 1) / SHORT_BYTES)
    part: Floats = np.clip(doublings / np.log2(LONG_BYTES / SHORT_BYTES), 0, 1)
    return part
