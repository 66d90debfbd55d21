"""Model errors of kernels of similar shape by a Gaussian process over the logarithms of sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Columns, Floats, Frameworks
from predictors.hardware import Hardware
from predictors.kernel_identity import list_names
from predictors.laws.law import LAWS
from predictors.laws.terms import LatencyTerms

LAW_AXES: dict[str, tuple[str, ...]] = {
    "gemm": ("batch", "m", "n", "k", "tiles"),
    "conv": ("batch", "m", "n", "k", "tiles"),
    "grouped": ("batch", "m", "n", "k", "tiles"),
    "miopen": ("batch", "m", "n", "k", "tiles", "window_size"),
    "prefill": ("batch", "heads", "q_len", "kv_len", "reach", "head_dim", "kv_heads", "window", "blocks"),
    "encoder": ("batch", "heads", "q_len", "head_dim", "blocks"),
    "sequence": ("batch", "heads", "q_len", "kv_len", "reach", "head_dim", "blocks", "backward"),
    "decode": ("batch", "heads", "kv_len", "reach", "head_dim", "kv_heads", "window", "units"),
    "latent": ("batch", "heads", "kv_len", "units"),
    "moe": ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "rows_per_expert", "skewed"),
}
"""Sizes by which kernels of a law are near or far from each other; of all others their bytes, rows and columns."""
COMMON_AXES = ("size", "kv_size", "intensity", "time")
"""What every law has beside its sizes: formats, compute over memory time, and clock cycles as the law has them."""
STACK_LENGTH_SCALE = 1.0
"""Makes kernels of two stacks 0.3 alike, and 0.5 like those of no name. The spread is learned from blocks of one stack,
which don't tell it; on GPUs left out, calibrated with two stacks at once, shorter ones were better by 0.2 points."""


@dataclass(frozen=True)
class ErrorSpread:
    """How far a GPU nobody measured is from what is predicted for it, as GPUs left out of a fit were.

    Attributes:
        length: Axis -> length scale: difference of the logarithm over which the correlation of errors falls.
        amplitude: Standard deviation of the errors that a GPU's offsets do not explain, as a logarithm.
        noise: Standard deviation of one kernel's own error, as a logarithm.
        offset: Constant of the law -> standard deviation of its logarithm.
        trust: Standard deviation of the fraction of the learned correction that applies.
    """

    length: dict[str, float]
    amplitude: float
    noise: float
    offset: dict[str, float]
    trust: float

    def get_offset_sds(self, constants: Iterable[str]) -> Floats:
        """Standard deviations of the offsets of some constants, and last of the trust."""
        return np.array([*(self.offset[name] for name in constants), self.trust])

    def compute_covariance(self, a: Floats, b: Floats) -> Floats:
        """Covariance of what kernels at two sets of places do beyond the offsets (Matern, 3/2).

        Args:
            a: From ``compute_coordinates``, (axes, kernels).
            b: The same of other kernels.

        Returns:
            (columns of a, columns of b).
        """
        lengths = [self.length[name] for name in sorted(self.length)]
        scale = np.array(lengths + [STACK_LENGTH_SCALE] * (a.shape[0] - len(lengths)))[:, None]
        return self.amplitude**2 * compute_matern_correlation(compute_distances(a / scale, b / scale))


@dataclass(frozen=True)
class GaussianProcessCorrection:
    """A correction of the logarithm of the time that fades with distance from the measured kernels.

    Attributes:
        spread: Covariance parameters.
        points: Coordinates of the measured kernels, (axes, kernels).
        weight: Weight of each measured kernel, (kernels,).
    """

    spread: ErrorSpread
    points: Floats
    weight: Floats

    def predict(self, places: Floats) -> Floats:
        """The correction, (rows,).

        Args:
            places: From ``compute_coordinates``, (axes, rows).
        """
        return self.spread.compute_covariance(places, self.points) @ self.weight


def list_axes(law: str) -> tuple[str, ...]:
    """Names of the sizes that `coordinates` starts with, in the alphabet's order."""
    return tuple(sorted(LAW_AXES.get(law.split(" ")[0], ("work_bytes", "rows", "cols")) + COMMON_AXES))


def compute_coordinates(law: str, frameworks: Frameworks, x: Columns, terms: LatencyTerms, gpu: Hardware) -> Floats:
    """Where kernels of a law lie, (axes, rows): logarithms of sizes, then 1 on the axis of their software.

    Kernels that each do a part of an op get the coordinates of the whole op.

    ``terms`` are those of the law before calibration; ``frameworks`` is None where no row names one.
    """
    x, terms = LAWS[law].scale_to_op(x, terms)
    with_more = {
        **x,
        "tiles": x["batch"] * np.ceil(x["m"] / 128) * np.ceil(x["n"] / 128) / gpu.sms,
        "blocks": x["batch"] * x["heads"] * np.ceil(x["q_len"] / 128) / gpu.sms,
        "units": x["batch"] * x["kv_heads"] / gpu.sms,
        "rows_per_expert": x["tokens"] * x["topk"] / x["experts"],
        "window": 1 + x["window"],
        "skewed": 1 + x["skewed"],
        "backward": 1 + x["backward"],
        "intensity": np.maximum(terms.compute_us, 1e-6) / np.maximum(terms.memory_us, 1e-6),
        "time": terms.time_us * gpu.clock_mhz,
    }
    known = np.full(x["work_bytes"].size, None) if frameworks is None else frameworks
    software = [(known == name).astype(np.float64) for name in list_names(law)]
    return np.stack([*(np.log(with_more[name]) for name in list_axes(law)), *software])


def build_default_spread(law: str, constants: Iterable[str]) -> ErrorSpread:
    """The spread of a law of which nothing was left out: lengths and offsets as they mostly are."""
    return ErrorSpread(dict.fromkeys(list_axes(law), 3.0), 0.15, 0.1, dict.fromkeys(constants, 0.15), 0.3)


def compute_distances(a: Floats, b: Floats) -> Floats:
    """Between each column of one and each of the other."""
    square = (a**2).sum(axis=0)[:, None] + (b**2).sum(axis=0) - 2 * a.T @ b
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))


def compute_matern_correlation(r: Floats) -> Floats:
    """Matern's correlation with smoothness 3/2 (Rasmussen and Williams, Gaussian Processes, 4.17)."""
    x = np.sqrt(3.0) * r
    return np.asarray((1 + x) * np.exp(-x))
