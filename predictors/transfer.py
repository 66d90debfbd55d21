"""Carrying a measured time to another GPU: how much of what the model missed there comes along."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import polars as pl

from predictors.fitted import Weights
from predictors.law import LAWS, Array
from predictors.machine import Machine

Mask = npt.NDArray[np.bool_]

SHRINK_ROWS = 4.0
"""A stack's offset is trusted like this many kernels' worth of measurements says zero."""

OWN = {"sibling": 0.7, "class": 0.4, "other": 0.15}
"""Exponent of a kernel's own part where the data has no pairs of such GPUs (study of modern GPUs, section 2)."""
STACK = {"sibling": 0.95, "class": 0.75, "other": 0.5}
"""Exponent of the offset of a software stack the weights don't know (section 5)."""
UNFITTED = {"sibling": 0.95, "class": 0.8, "other": 0.6}
"""Exponent of a kernel's own part where the law or, but for products, the kernel's framework was never fitted: most
of it is work that the law doesn't count, such as strided reads, and that goes where the kernel goes."""
MISFIT = math.log(2.0)
"""Beyond a factor of two the law doesn't describe the kernel; what goes beyond is carried over whole."""


def residual(table: pl.DataFrame, log_ratio: Array, source: Machine, target: Machine, weights: Weights) -> Array:
    """What to add to the logarithm of the model's time on the target.

    The logarithm of measured over modelled time on the source splits into what all kernels of one law share (their
    software stack's offset) and each kernel's own part; both come along with an exponent, near 1 between siblings,
    which run the same kernels.

    Args:
        table: rows with `law` and `framework`.
        log_ratio: log(measured / modelled) on the source; NaN where there is no measurement.
        source: where it was measured.
        target: where to.
        weights: holds the exponents.
    """
    frame = table.select("law", ratio=pl.Series(log_ratio, nan_to_null=True), known=pl.col("framework").is_not_null())
    group = ["law", "known"]
    typical = pl.col("ratio").clip(-MISFIT, MISFIT)
    offset = typical.median().over(group) * (
        pl.col("ratio").count().over(group) / (pl.col("ratio").count().over(group) + SHRINK_ROWS)
    )
    excess = pl.col("ratio") - pl.col("ratio").clip(-MISFIT, MISFIT)
    parts = frame.with_columns(offset=offset, own=pl.col("ratio") - excess - offset, excess=excess)
    kinship = relation(source, target)
    own, shared = _exponents(parts, kinship, weights)
    shared = np.where(_stack_is_known(parts["law"], source, target, weights), 0.0, shared)
    carried = parts["offset"].to_numpy() * shared + parts["own"].to_numpy() * own + parts["excess"].to_numpy()
    return np.asarray(np.nan_to_num(carried))


def _stack_is_known(laws: pl.Series, source: Machine, target: Machine, weights: Weights) -> Mask:
    """Where the target's calibration has the stack's offset in it already, and the source has none to compare with."""
    calibrated = {law for law, slug in weights.calibrated if slug == target.slug}
    calibrated -= {law for law, slug in weights.calibrated if slug == source.slug}
    return laws.is_in(calibrated).fill_null(False).to_numpy()


def relation(source: Machine, target: Machine) -> str:
    """'sibling' (same kernels), 'class' (same kind of matrix units) or 'other'."""
    if source.architecture == target.architecture:
        return "sibling"
    return "class" if source.tensor_class == target.tensor_class else "other"


def _exponents(rows: pl.DataFrame, kinship: str, weights: Weights) -> tuple[Array, Array]:
    """Exponents of a kernel's own part and of its stack's offset."""
    laws, known = rows["law"], rows["known"].to_numpy()
    fitted = {law: e[kinship] for law, e in weights.transfer.items() if kinship in e}
    unfitted = {law: UNFITTED[kinship] for law in LAWS if law not in weights.laws}
    chosen = fitted | unfitted | {"memcpy": 1.0}
    own = laws.replace_strict(chosen, default=OWN[kinship], return_dtype=pl.Float64).to_numpy()
    product = laws.str.starts_with("gemm").fill_null(False).to_numpy()
    unknown = np.maximum(own, np.where(product, OWN[kinship], UNFITTED[kinship]))
    return np.where(known, own, unknown), np.where(known, own, np.maximum(unknown, STACK[kinship]))


def in_order(time_us: Array, measured_us: Array, dtypes: pl.Series, source: Machine, target: Machine) -> Array:
    """Predicted times that never make a GPU slower than one it equals or beats in everything, nor the reverse.

    Args:
        time_us: predicted on the target.
        measured_us: measured on the source; NaN where unknown.
        dtypes: what each kernel runs in.
        source: where it was measured.
        target: where to.
    """
    better, worse = dominates(target, source), dominates(source, target)
    rates = {d: (source.tflops(d), target.tflops(d)) for d in dtypes.unique().to_list()}
    faster = {d: better and there >= here for d, (here, there) in rates.items()}
    slower = {d: worse and there <= here for d, (here, there) in rates.items()}
    capped = np.where(_per_dtype(dtypes, faster), np.fmin(time_us, measured_us), time_us)
    return np.where(_per_dtype(dtypes, slower), np.fmax(capped, measured_us), capped)


def like_siblings(time_us: Array, measured_us: Array, table: pl.DataFrame, source: Machine, target: Machine) -> Array:
    """Predicted times between siblings, which run the same kernels.

    None gains or loses more than the resource in which the two GPUs differ most; what takes a fixed time gains nothing.

    Args:
        time_us: predicted on the target.
        measured_us: measured on the source; NaN where unknown.
        table: rows with `law` and `dtype`; copies over a link are left alone.
        source: where it was measured.
        target: where to.
    """
    if relation(source, target) != "sibling":
        return time_us
    fixed = [1.0, target.gpu.tdp_w / source.gpu.tdp_w, target.bandwidth_gbps / source.bandwidth_gbps]
    fixed += [target.cache_gbps / source.cache_gbps, target.vector_tflops / source.vector_tflops]
    rates = {d: target.tflops(d) / source.tflops(d) for d in table["dtype"].unique().to_list()}
    rate = table["dtype"].replace_strict(rates, return_dtype=pl.Float64).to_numpy()
    least, most = measured_us / np.maximum(rate, max(fixed)), measured_us / np.minimum(rate, min(fixed))
    bounded = np.fmin(np.fmax(time_us, least), most)
    return np.where(table["law"].eq_missing("memcpy").to_numpy(), time_us, bounded)


def ordered(one: Machine, other: Machine) -> bool:
    """Whether one of two GPUs is at least as good as the other in everything."""
    return dominates(one, other) or dominates(other, one)


def dominates(one: Machine, other: Machine) -> bool:
    """Whether a GPU has at least the other's clock, vector rate, memory rate, cache and power budget."""
    rates = ("clock_mhz", "vector_tflops", "bandwidth_gbps", "cache_bytes", "cache_gbps")
    no_less = all(getattr(one, rate) >= getattr(other, rate) for rate in rates)
    return no_less and one.gpu.tdp_w >= other.gpu.tdp_w


def _per_dtype(dtypes: pl.Series, answers: dict[str | None, bool]) -> Mask:
    return dtypes.replace_strict(answers, return_dtype=pl.Boolean).to_numpy()
