"""Carrying a measured time to another GPU: how much of what the model missed there comes along."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats, Ints
from predictors.coded import Coded
from predictors.fitted import Weights
from predictors.law import EXPONENTIAL_LAWS, LAWS
from predictors.machine import Machine

SHRINK_ROWS = 4.0
"""A stack's offset is trusted like this many kernels' worth of measurements says zero."""

OWN = {"sibling": 0.7, "class": 0.4, "other": 0.15, "vendor": 0.1}
"""Exponent of a kernel's own part where the data has no pairs of such GPUs (study of modern GPUs, section 2)."""
STACK = {"sibling": 0.95, "class": 0.75, "other": 0.5, "vendor": 0.25}
"""Exponent of the offset of a software stack the weights don't know (section 5)."""
UNFITTED = {"sibling": 0.95, "class": 0.8, "other": 0.6, "vendor": 0.25}
"""Exponent of a kernel's own part where the law or, but for products, the kernel's framework was never fitted: most
of it is work that the law doesn't count, such as strided reads, and that goes where the kernel goes."""
MISFIT = math.log(2.0)
"""Beyond a factor of two the law doesn't describe the kernel; what goes beyond is carried over whole."""
BOARDS = 0.05
"""How far boards of one die are apart, as a logarithm: 5 % and more on one node (stas00/ml-engineering, silicon
lottery)."""
HOST_COPIES = ("HtoD", "DtoH")
LIBRARY = ("gemm", "conv", "moe", "prefill", "encoder", "sequence", "decode")
"""Laws whose kernels come from a vendor's libraries; the others' are PyTorch's own, the same code on every GPU."""


@dataclass(frozen=True)
class Missed:
    """What the model missed on the source, as logarithms, one element a row; their sum is all of it.

    Attributes:
        offset: what all kernels of one law share: their software stack's.
        own: each kernel's own part.
        excess: what goes beyond `MISFIT`.
        table: distinct kernels as they run there.
    """

    offset: Floats
    own: Floats
    excess: Floats
    table: pl.DataFrame


def missed(table: pl.DataFrame, row: Ints, log_ratio: Floats) -> Missed:
    """Splits the logarithm of measured over modelled time on the source.

    Args:
        table: distinct kernels as they run on the source, with `law`, `on_mma` and `framework`.
        row: of which of them each measurement is.
        log_ratio: log(measured / modelled); NaN where there is no measurement.
    """
    groups = table.select(pl.struct("law", pl.col("framework").is_not_null()).rank("dense").alias("group"))
    group = groups["group"].gather(row)
    typical = np.clip(log_ratio, -MISFIT, MISFIT)
    ratio = pl.DataFrame({"group": group, "ratio": pl.Series(typical, nan_to_null=True)})
    count = pl.col("ratio").count().over("group")
    shrunk = pl.col("ratio").median().over("group") * (count / (count + SHRINK_ROWS))
    offset = ratio.select(pl.when(pl.col("ratio").is_not_null()).then(shrunk).fill_null(0.0))[:, 0].to_numpy()
    return Missed(offset, np.nan_to_num(typical - offset), np.nan_to_num(log_ratio - typical), table)


def residual(
    missed: Missed, table: pl.DataFrame, row: Ints, source: Machine, target: Machine, weights: Weights
) -> Floats:
    """What to add to the logarithm of the model's time on the target.

    A stack's offset and a kernel's own part each come along with an exponent, near 1 between siblings, which run the
    same kernels, and 0 for a product that runs on other units there (in TF32 on an A100, in fp32 on a V100).

    Args:
        missed: on the source.
        table: distinct kernels as they run on the target, with `law`, `on_mma` and `framework`.
        row: of which of them each measurement is.
        source: where it was measured.
        target: where to.
        weights: holds the exponents.
    """
    kinship = relation(source, target)
    own, shared = _exponents(table, missed.table["law"], kinship, weights)
    # Kernels made for an A100's matrix units are the same on any GPU that has them.
    older = (table["on_mma"] | missed.table["on_mma"]).to_numpy()
    if older.any():
        of_older = _exponents(table, missed.table["law"], relation(source.on_mma, target.on_mma), weights)
        own, shared = np.where(older, of_older[0], own), np.where(older, of_older[1], shared)
    beyond = np.where(_of(LIBRARY, Coded.of(table["law"])), own, 1.0) if kinship == "vendor" else np.ones_like(own)
    # The target's calibration has its stack's offset in it already, where the source has none to compare with.
    known = weights.calibrates(table, target) & ~weights.calibrates(missed.table, source)
    shared = np.where(known, 0.0, shared)
    return np.asarray(missed.offset * shared[row] + missed.own * own[row] + missed.excess * beyond[row])


def relation(source: Machine, target: Machine) -> str:
    """'sibling' (same kernels), 'class' (same kind of matrix units), 'other' or 'vendor' (another vendor's)."""
    if source.gpu.vendor != target.gpu.vendor:
        return "vendor"
    if source.architecture == target.architecture:
        return "sibling"
    return "class" if source.tensor_class == target.tensor_class else "other"


def _exponents(table: pl.DataFrame, laws_there: pl.Series, kinship: str, weights: Weights) -> tuple[Floats, Floats]:
    """Exponents of a kernel's own part and of its stack's offset.

    What products missed by one law tells nothing of another: of fp8 and half precision, on equal shapes of held-out
    GPUs, a correlation of -0.1 to 0.1.
    """
    laws, known = Coded.of(table["law"]), table["framework"].is_not_null().to_numpy()
    fitted = {law: e[kinship] for law, e in weights.transfer.items() if kinship in e}
    unfitted = {law: UNFITTED[kinship] for law in LAWS if law not in weights.laws}
    chosen = fitted | unfitted | {"memcpy": 1.0}
    own = laws.map(lambda law: chosen.get(law or "", OWN[kinship]))
    product = _of(LIBRARY if kinship == "vendor" else ("gemm",), laws)
    unknown = np.maximum(own, np.where(product, OWN[kinship], UNFITTED[kinship]))
    other_units = _of(("gemm",), laws) & table["law"].ne_missing(laws_there).to_numpy()
    own, shared = np.where(known, own, unknown), np.where(known, own, np.maximum(unknown, STACK[kinship]))
    return np.where(other_units, 0.0, own), np.where(other_units, 0.0, shared)


def _of(kinds: Collection[str], laws: Coded) -> Bools:
    return laws.map(lambda law: law is not None and law.split(" ")[0] in kinds)


def in_order(
    time_us: Floats,
    measured_us: Floats,
    dtypes: pl.Series,
    dtypes_there: pl.Series,
    row: Ints,
    source: Machine,
    target: Machine,
) -> Floats:
    """Predicted times that never make a GPU slower than one it equals or beats in everything, nor the reverse.

    Args:
        time_us: predicted on the target.
        measured_us: measured on the source; NaN where unknown.
        dtypes: what each distinct kernel runs in on the target.
        dtypes_there: the same on the source.
        row: which of them each row is.
        source: where it was measured.
        target: where to.
    """
    better, worse = dominates(target, source), dominates(source, target)
    if not (better or worse):
        return time_us
    rate = (Coded.of(dtypes).map(target.tflops) / Coded.of(dtypes_there).map(source.tflops))[row]
    if better:
        time_us = np.where(rate >= 1, np.fmin(time_us, measured_us), time_us)
    if worse:
        time_us = np.where(rate <= 1, np.fmax(time_us, measured_us), time_us)
    return time_us


def like_siblings(
    time_us: Floats, measured_us: Floats, table: pl.DataFrame, row: Ints, source: Machine, target: Machine
) -> Floats:
    """Predicted times between siblings, which run the same kernels.

    None gains or loses more than the resource in which the two GPUs differ most; what takes a fixed time gains nothing.

    Args:
        time_us: predicted on the target.
        measured_us: measured on the source; NaN where unknown.
        table: distinct kernels with `law` and `dtype`; copies over a link are left alone.
        row: which of them each row is.
        source: where it was measured.
        target: where to.
    """
    if relation(source, target) != "sibling":
        return time_us
    rate = Coded.of(table["dtype"]).map(lambda dtype: target.tflops(dtype) / source.tflops(dtype))
    least, most = target.share_of_time(source, rate, _of(EXPONENTIAL_LAWS, Coded.of(table["law"])))
    bounded = np.fmin(np.fmax(time_us, measured_us * least[row]), measured_us * most[row])
    return np.where(table["law"].eq_missing("memcpy").to_numpy()[row], time_us, bounded)


def as_the_host_feeds(
    time_us: Floats, measured_us: Floats, missed: Missed, alone_us: Floats, table: pl.DataFrame, row: Ints
) -> Floats:
    """Predicted times, of which copies to and from the host keep what they took beyond their link's time.

    The host took that: memory that isn't pinned is copied into a buffer first.

    Args:
        time_us: predicted on the target.
        measured_us: measured on the source; NaN where unknown.
        missed: on the source.
        alone_us: by the model alone on the target.
        table: distinct kernels with `copy_kind`.
        row: which of them each row is.
    """
    of_host = table["copy_kind"].is_in(HOST_COPIES).fill_null(False).to_numpy()
    if not of_host.any():
        return time_us
    copies = np.flatnonzero(of_host[row])
    missed_there = missed.offset[copies] + missed.own[copies] + missed.excess[copies]
    beyond_us = measured_us[copies] * (1 - np.exp(-missed_there))
    kept = time_us.copy()
    kept[copies] = np.where(beyond_us > 0, alone_us[copies] + beyond_us, time_us[copies])
    return kept


def as_far_as_boards(
    width: Floats, measured_us: Floats, table: pl.DataFrame, row: Ints, source: Machine, target: Machine
) -> Floats:
    """Half-widths of intervals, no wider where both GPUs have the same die than its boards are apart.

    Args:
        width: as logarithms.
        measured_us: measured on the source; NaN where unknown.
        table: distinct kernels with `law` and `dtype`; export limits hold links and fp64 back, so these are left alone.
        row: which of them each row is.
        source: where it was measured.
        target: where to.
    """
    if not _same_die(source, target):
        return width
    other = (table["law"].eq_missing("memcpy") | table["dtype"].eq_missing("fp64")).to_numpy()[row]
    return np.where(other | np.isnan(measured_us), width, np.minimum(width, BOARDS))


def _same_die(one: Machine, other: Machine) -> bool:
    """Whether two GPUs differ in their links, fp64 or memory's size at most, as A100 and A800 do."""
    first, second = ((m.architecture, m.sms, m.tflops("fp16")) for m in (one, other))
    return first == second and dominates(one, other) and dominates(other, one)


def ordered(one: Machine, other: Machine) -> bool:
    """Whether one of two GPUs is at least as good as the other in everything."""
    return dominates(one, other) or dominates(other, one)


def dominates(one: Machine, other: Machine) -> bool:
    """Whether a GPU has at least the other's clock, vector rate, exponentials, memory rate, cache and power budget.

    Of one vendor's only: the other's libraries and launches are no better for it. An MI300X has more of everything than
    an H100 and ran the attention of the same jobs three times slower.
    """
    rates = (
        *("clock_mhz", "vector_tflops", "exponentials_per_clock"),
        *("bandwidth_gbps", "written_gbps", "cache_bytes", "cache_gbps"),
    )
    no_less = all(getattr(one, rate) >= getattr(other, rate) for rate in rates)
    return no_less and one.gpu.tdp_w >= other.gpu.tdp_w and one.gpu.vendor == other.gpu.vendor
