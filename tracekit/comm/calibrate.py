"""Fit the collective model to a few collectives that were measured on a cluster.

The latencies and rates of the model get a factor each (by Gauss-Newton steps with a Gaussian prior). What the factors
leave unexplained is interpolated over message size and ranks, as a Gaussian process does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.arrays import Bools, Floats
from tracekit.comm.collective_calls import CollectiveCalls, CollectiveLinks
from tracekit.comm.constants import CollectiveConstants
from tracekit.comm.law import AlgorithmNames, predict_times

FACTOR_NAMES = ("latency", "hop", "bandwidth", "network_latency", "network_bandwidth")
FACTOR_LOG_SD = np.array([0.3, 0.2, 0.3, 1.0, 0.4])
"""Prior standard deviation of the logarithm of each factor: the spread over machines that were left out of the fit. The
two network factors: the spread of published results."""
KNOWN_GENERATION_FACTOR_LOG_SD = np.array([0.05, 0.05, 0.05, 1.0, 0.4])
"""The same prior for machines whose GPU generation was measured: the spread between sibling GPUs."""

NVLINK_MODEL_LOG_SD, RCCL_MODEL_LOG_SD, PCIE_MODEL_LOG_SD = 0.08, 0.15, 0.3
SHORT_INTER_NODE_LOG_SD, LONG_INTER_NODE_LOG_SD = 0.3, 0.15
"""Standard deviation of the model's log error once latencies and rates are known: inside a node, and between nodes."""
SHORT_MESSAGE_BYTES, LONG_MESSAGE_BYTES = 2**24, 2**34
"""Message sizes between nodes at which the model's error is largest and smallest."""
MEASUREMENT_LOG_SD = 0.03
"""Standard deviation of the logarithm of one measurement."""
CORRELATION_LENGTH_LOG = 3.0
"""Correlation length of the model's error, in the logarithm of sizes plus that of ranks."""
CROSS_COLLECTIVE_CORRELATION = 0.5
"""Correlation between the model's errors on two different collectives."""

DERIVATIVE_STEP = 1e-2
GAUSS_NEWTON_ITERATIONS, MAX_LOG_STEP = 6, 0.7
MIN_TIME_US, MAX_TIME_US = 1e-6, 1e30
"""Bounds for logarithms. One rank takes no time, and an algorithm that cannot run takes infinite time: neither changes
with a factor."""


@dataclass(frozen=True, slots=True)
class CalibrationPoints:
    """Collectives as inputs of the Gaussian process, one element per collective.

    Attributes:
        collective: Name of the collective.
        log_bytes_and_ranks: Logarithms of bytes and of ranks, shape (2, collectives).
        is_inter_node: Whether the collective crosses nodes.
        error_log_sd: Standard deviation of the model's log error.
    """

    collective: AlgorithmNames
    log_bytes_and_ranks: Floats
    is_inter_node: Bools
    error_log_sd: Floats

    @staticmethod
    def from_calls(calls_with_links: Sequence[tuple[CollectiveCalls, CollectiveLinks]]) -> "CalibrationPoints":
        """Concatenate collectives, one kind after the other."""
        parts = [_compute_point_fields(calls, links) for calls, links in calls_with_links]
        kind, at, between, missed = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
        return CalibrationPoints(kind, at, between, missed)

    def compute_covariance(self, other: "CalibrationPoints") -> Floats:
        """Compute the covariance of the model's log errors, shape (own, other's)."""
        far = np.abs(self.log_bytes_and_ranks[:, :, None] - other.log_bytes_and_ranks[:, None, :]).sum(axis=0)
        kinds = np.where(self.collective[:, None] == other.collective, 1.0, CROSS_COLLECTIVE_CORRELATION)
        same = self.is_inter_node[:, None] == other.is_inter_node
        covariance: Floats = (
            same * kinds * np.exp(-far / CORRELATION_LENGTH_LOG) * self.error_log_sd[:, None] * other.error_log_sd
        )
        return covariance


def _compute_point_fields(
    calls: CollectiveCalls, links: CollectiveLinks
) -> tuple[AlgorithmNames, Floats, Bools, Floats]:
    """Compute the fields of ``CalibrationPoints`` for the collectives of one kind."""
    sizes, between = np.maximum(calls.size_bytes, 1), calls.nodes > 1
    long = compute_length_fraction(sizes)
    inside = np.where(
        links.is_pcie, PCIE_MODEL_LOG_SD, NVLINK_MODEL_LOG_SD if links.compute_capability_major else RCCL_MODEL_LOG_SD
    )
    missed = np.where(between, SHORT_INTER_NODE_LOG_SD ** (1 - long) * LONG_INTER_NODE_LOG_SD**long, inside)
    return np.full(sizes.shape, calls.collective), np.log(np.stack([sizes, calls.ranks])), between, missed


@dataclass(frozen=True, slots=True)
class ClusterCalibration:
    """The calibration of one cluster, fitted to its measured collectives.

    Attributes:
        log_factors: Logarithms of the factors, shape (FACTOR_NAMES,).
        points: The measured collectives.
        sensitivities: Derivatives of the logarithm of their times by the log factors, shape (collectives,
        FACTOR_NAMES).
        error_weights: Gaussian process weights,
        shape (collectives,): times the covariance they give the log correction.
        inverse_covariance: Inverse covariance of the measurements, shape (collectives, collectives).
        factor_log_sd: Prior standard deviation of each log factor, shape (FACTOR_NAMES,).
    """

    log_factors: Floats
    points: CalibrationPoints
    sensitivities: Floats
    error_weights: Floats
    inverse_covariance: Floats
    factor_log_sd: Floats

    def predict_times(
        self, calls: CollectiveCalls, links: CollectiveLinks, constants: CollectiveConstants, only: str | None = None
    ) -> tuple[Floats, AlgorithmNames, Floats]:
        """Return times in us and algorithms as ``law.predict_times`` does, and the standard deviation of the log time.

        The standard deviation is infinite between nodes if no collective between nodes was measured, and on one node
        likewise.

        Args:
            calls: Collectives.
            links: Bandwidths of the links that they use.
            constants: Constants of the model.
            only: The only algorithm allowed; None for all.
        """
        time_us, algorithm = predict_times(calls, *apply_factors(links, constants, self.log_factors), only)
        places = CalibrationPoints.from_calls([(calls, links)])
        slopes = compute_sensitivities(
            lambda offset: predict_times(calls, *apply_factors(links, constants, offset), only)[0], self.log_factors
        )
        alike = places.compute_covariance(self.points)
        shared = alike + (slopes * self.factor_log_sd**2) @ self.sensitivities.T
        variance = (
            places.error_log_sd**2
            + slopes**2 @ self.factor_log_sd**2
            - np.einsum("ip,pq,iq->i", shared, self.inverse_covariance, shared)
        )
        added = np.where(calls.has_custom_allreduce, 0.0, alike @ self.error_weights)
        sd = np.where(
            np.isin(places.is_inter_node, self.points.is_inter_node),
            np.sqrt(np.maximum(variance, MEASUREMENT_LOG_SD**2)),
            np.inf,
        )
        return time_us * np.exp(added), algorithm, sd


def fit_calibration(
    calls_with_links: Sequence[tuple[CollectiveCalls, CollectiveLinks]],
    constants: CollectiveConstants,
    measured_us: Floats,
    *,
    known: bool,
) -> ClusterCalibration:
    """Fit the factors to measured times by Gauss-Newton steps, and keep what they leave unexplained.

    ``calls_with_links`` has the measured collectives and their links, one pair for each kind of collective;
    ``measured_us`` the times of all of them, shape (collectives,), above 0. ``known`` says whether nodes of this GPU
    generation were measured. Then the factors are expected near 1, unless the wider prior explains the measurements
    better.
    """

    def model(offset: Floats) -> Floats:
        return np.concatenate(
            [predict_times(calls, *apply_factors(links, constants, offset))[0] for calls, links in calls_with_links]
        )

    places = CalibrationPoints.from_calls(calls_with_links)
    offset = np.zeros(FACTOR_LOG_SD.size)
    rest = places.compute_covariance(places) + MEASUREMENT_LOG_SD**2 * np.eye(measured_us.size)
    missed, slopes = np.log(measured_us / model(offset)), compute_sensitivities(model, offset)
    spreads = [KNOWN_GENERATION_FACTOR_LOG_SD, FACTOR_LOG_SD] if known else [FACTOR_LOG_SD]
    sd = min(spreads, key=lambda one: _compute_deviance(missed, rest + (slopes * one**2) @ slopes.T))
    for _ in range(GAUSS_NEWTON_ITERATIONS):
        slopes = compute_sensitivities(model, offset)
        missed = np.log(measured_us / model(offset)) + slopes @ offset
        inverse = np.asarray(np.linalg.inv(rest + (slopes * sd**2) @ slopes.T))
        offset = offset + np.clip(sd**2 * (slopes.T @ inverse @ missed) - offset, -MAX_LOG_STEP, MAX_LOG_STEP)
    weight = np.asarray(np.linalg.solve(rest, np.log(measured_us / model(offset))))
    return ClusterCalibration(offset, places, slopes, weight, inverse, sd)


def _compute_deviance(missed: Floats, covariance: Floats) -> float:
    """Compute -2 log likelihood, up to a constant."""
    return float(missed @ np.linalg.solve(covariance, missed) + np.linalg.slogdet(covariance)[1])


def apply_factors(
    links: CollectiveLinks, constants: CollectiveConstants, offset: Floats
) -> tuple[CollectiveLinks, CollectiveConstants]:
    """Multiply a cluster's links and the model's constants by factors.

    Args:
        links: Links of the cluster, with the scales of the measured machine that stands for it.
        constants: Constants of the model.
        offset: Logarithms of the factors, shape (FACTOR_NAMES,).
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


def compute_sensitivities(model: Callable[[Floats], Floats], offset: Floats) -> Floats:
    """Compute the derivatives of the log time by each log factor, shape (collectives, FACTOR_NAMES).

    Args:
        model: Function from log factors, shape (FACTOR_NAMES,), to times in us, shape (collectives,).
        offset: Log factors at which the derivatives are taken.
    """
    steps = DERIVATIVE_STEP * np.eye(offset.size)
    ends = [[np.clip(model(offset + sign * s), MIN_TIME_US, MAX_TIME_US) for sign in (1, -1)] for s in steps]
    return np.stack([np.log(more / less) / (2 * DERIVATIVE_STEP) for more, less in ends], axis=1)


def compute_length_fraction(size_bytes: Floats) -> Floats:
    """Interpolate between short messages (0, largest model error) and long ones (1, smallest) in log bytes."""
    doublings = np.log2(np.maximum(size_bytes, 1) / SHORT_MESSAGE_BYTES)
    part: Floats = np.clip(doublings / np.log2(LONG_MESSAGE_BYTES / SHORT_MESSAGE_BYTES), 0, 1)
    return part
