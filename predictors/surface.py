"""What measured kernels say about unmeasured ones of like shape: a Gaussian process over the logarithms of sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictors.law import Array, Columns

AXES: dict[str, tuple[str, ...]] = {
    "gemm": ("batch", "m", "n", "k"),
    "conv": ("batch", "m", "n", "k"),
    "prefill": ("batch", "heads", "q_len", "reach", "head_dim", "kv_heads"),
    "encoder": ("batch", "heads", "q_len", "reach", "head_dim"),
    "decode": ("batch", "heads", "reach", "head_dim", "kv_heads"),
    "moe": ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep"),
}
"""Sizes by which kernels of a law are near or far from each other; of all others their bytes, rows and columns."""
LENGTH = 2.5
"""Difference of a size's logarithm over which its influence fades."""
KIND = 2.0
"""How far apart, like the logarithm of a size, kernels of other formats or routing lie."""
SPREAD = 0.15
"""How far apart, as a logarithm, unlike shapes lie once a GPU's offsets are taken out."""
NOISE = 0.12
"""Of one measured kernel, as a logarithm."""


@dataclass(frozen=True)
class Surface:
    """A correction of the logarithm of the time that fades with distance from the measured kernels.

    Attributes:
        points: where kernels were measured, (sizes, kernels).
        weight: (kernels,), what each adds at its own place.
    """

    points: Array
    weight: Array

    def at(self, places: Array) -> Array:
        """The correction, (rows,).

        Args:
            places: from `coordinates`, (sizes, rows).
        """
        return _kinship(places, self.points) @ self.weight


def coordinates(law: str, x: Columns) -> Array:
    """Where kernels of a law lie, (sizes, rows), in units of `LENGTH`."""
    axes = AXES.get(law.split(" ")[0], ("work_bytes", "rows", "cols"))
    sizes = [np.log(x[name]) for name in axes]
    kinds = [np.log1p(x["window"]), *(KIND * np.log2(x[name]) for name in ("size", "kv_size")), KIND * x["skewed"]]
    return np.asarray(np.stack([*sizes, *kinds]) / LENGTH)


def surface(points: Array, missed: Array) -> Surface:
    """The most probable surface.

    Args:
        points: from `coordinates`, of the measured kernels.
        missed: logarithms of measured over predicted time there.
    """
    covariance = _kinship(points, points) + (NOISE / SPREAD) ** 2 * np.eye(missed.size)
    return Surface(points, np.asarray(np.linalg.solve(covariance, missed), dtype=np.float64))


def _kinship(a: Array, b: Array) -> Array:
    """exp(-distance^2 / 2), (columns of a, columns of b)."""
    square = (a**2).sum(axis=0)[:, None] + (b**2).sum(axis=0) - 2 * a.T @ b
    return np.asarray(np.exp(-0.5 * np.maximum(square, 0.0)))
