"""Compute 90 % intervals, with widths from GPUs left out of the fit, and build the rows that ``predict`` returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from predictors.arrays import CategoricalColumn, Floats, Ints
from predictors.fitted_kernels import Told, find_fitted
from predictors.hardware import Hardware
from predictors.kernel_identity import ATTENTION_LAWS, SERVING_FRAMEWORKS
from predictors.kernels import TENSOR_FAMILIES, UNMEASURED_LAWS
from predictors.model import LIMITERS, KernelsByLaw, ModelTimes, compute_software_spread
from predictors.power import compute_demand_w, limit_power_w
from predictors.transfer import classify_kinship
from predictors.weights_file import Weights, are_limited_alike

SITUATIONS = ("base", "sibling", "class", "new")
"""How close the measurements of a law come to a GPU that was not calibrated, from near to far: the GPU itself, a
sibling, the same class of matrix units, none of these."""
CALIBRATED = "calibrated"
ENGINE, LIBRARY, NOTHING, UNVERSIONED, RELEASE_ALONE, BETWEEN, NEW_RELEASE, NEW_LIBRARY = TOLD_LEVELS = (
    "engine", "library", "nothing", "engine and library", "engine and release", "between releases", "new release",
    "new library",
)  # fmt: skip
"""What a kernel's interval has on top, in squares, beside the situations' widths: where only its engine, its library or
no name is told, where its engine is told with its library or its release, without the other, where its release is
between two fitted ones or beyond them, and where its library was fitted in no release of its engine. The spread of the
fitted kernels that it may be of comes on top of that (``model.compute_software_spread``)."""
NEW_SOFTWARE = (BETWEEN, NEW_RELEASE, NEW_LIBRARY)
"""Of these, those of kernels that the fit doesn't know though all is told."""
TOLD_ALL = "release"
OF_SIBLING = "release of a sibling"
"""What is told of kernels whose release and library were fitted on another GPU of the architecture alone: they are as
unsure as a GPU left out that has a sibling."""
SHARED_ERROR_FRACTION = 0.4
"""How much of its error a kernel shares with the others of its family where the fit doesn't tell."""
FAMILY_CORRELATION = 0.2
"""Correlation of what families' kernels share with what others share on the same GPU: its clock. Of laws' mean errors
on GPUs left out it is 0.28 on siblings, 0.08 of a class, 0.12 elsewhere
(tests/validation/results/kernels/interval_sides.md)."""
SLOWNESS_HALF_WIDTH = 1.0
"""Half-width of what is unknown of a stack's time on another kind of GPU, for each unit of what the model misses of the
stack on the source, both as logarithms: 1.64 times 0.53 to 0.68, the standard deviations of pairs of stacks
(tests/validation/results/kernels/interval_sides.md). It rests on few stacks that are more than 0.2 off."""
UNCHANGED_HALF_WIDTH = 0.7
UNKNOWN_SOURCE_HALF_WIDTH = 2.35
"""Half-width of a time that is kept from a GPU that nobody told: of pairs of the known GPUs, 90 % have memory rates
within a factor of 10.5."""
SCALED_HALF_WIDTH = 0.35
OTHER_VENDOR_HALF_WIDTH = 1.0
"""How far a scaled time may lie beyond what peaks allow on a GPU of another vendor, whose libraries reach less of them:
of GEMMs whose shapes had been taken away 96 % are inside, with 0.35 79 %
(tests/validation/results/kernels/hidden_shapes.md)."""


UNFITTED_VENDOR_FACTOR, OTHER_VENDORS_MARGIN = 2.0, 1.25
"""How much wider than NVIDIA's GPUs left out a vendor's are whose GPUs and libraries nobody fitted, and how much wider
than any other vendor's for products and attention. Of one such, an Arc Pro B60 with vLLM 0.20 and 0.26
(aiconfigurator-core 0.12.0), 82 to 89 % of GEMMs lie inside so, 86 % of prefill, 92 % of decoding, 98 % of experts;
with NVIDIA's widths it is 50 to 76 % of all but experts in bf16."""
MAX_UNFITTED_VENDOR_HALF_WIDTH = math.log(10.0)
"""What 90 % of decoding needs there, the most of all laws."""


def classify_situation(law: str, gpu: Hardware, weights: Weights) -> str:
    """How close the measurements of a law come to a GPU: one of `SITUATIONS`, or 'calibrated'."""
    own = weights.calibrated.get((law, gpu.slug))
    if own is not None and own.gaussian_process is not None:
        return CALIBRATED
    measured = weights.get_law(law).well_measured
    if gpu.slug in measured:
        return "base"
    if weights.has_sibling(law, gpu):
        return "sibling"
    alike = (gpu.tensor_class == one.tensor_class and are_limited_alike(law, gpu, one) for one in measured.values())
    return "class" if any(alike) else "new"


def get_width_key(law: str, vendor: str) -> str:
    """What the widths of a law are kept under: those of NVIDIA's GPUs under its name."""
    return law if vendor == "nvidia" else f"{law} on {vendor}"


def get_carried_key(kinship: str, where: str, told: str) -> str:
    """What the width of a time carried from a relative is kept under, beside the situations' widths."""
    return f"{kinship} to {where}, {told} told"


def get_cell_key(gpu: str, engine: str, release: float) -> str:
    """What the width of one release's kernels on one GPU is kept under, where the fit misses more of them."""
    return f"{gpu}, {engine} {release:g}"


def compute_half_width(
    law: str, gpu: Hardware, weights: Weights, told: str = TOLD_ALL, kinship: str | None = None
) -> float:
    """Half-width, as a logarithm, of the interval of one kernel predicted from its shape.

    Args:
        law: Law of the kernel.
        gpu: GPU that the kernel is predicted for.
        weights: Weights with the interval widths.
        told: What is told of the kernel's software: one of `TOLD_LEVELS`, or all.
        kinship: How the GPU that the kernel was measured on is related (``transfer.classify_kinship``); None without a
            measurement.
    """
    own = weights.intervals.get(get_width_key(law, gpu.gpu.vendor))
    widths = weights.intervals.get(law) if own is None else own
    where = _place_kernel(law, gpu, weights, told)
    if widths is None:
        default = {"base": 0.35, CALIBRATED: 0.35, "sibling": 0.4, "class": 0.5, "new": 0.7}[where]
        return default + (0.1 if law.split(" ")[0] in TENSOR_FAMILIES else 0.0)
    carried = widths.get(get_carried_key(kinship, where, told)) if kinship else None
    if carried is not None and kinship == "sibling":
        return carried
    nearest = widths[where] if own is not None or where != "new" else _compute_unfitted_vendor_width(law, weights)
    # A calibration measures the software that will run.
    by_shape = nearest if where == CALIBRATED else math.hypot(nearest, widths.get(told, 0.0))
    # Other kernels run there, of which the measurement tells less than the fit.
    return by_shape if carried is None else max(by_shape, carried)


def _place_kernel(law: str, gpu: Hardware, weights: Weights, told: str) -> str:
    """How close the measurements come to a kernel of which so much is told: as to its GPU, but for a sibling's."""
    where = classify_situation(law, gpu, weights)
    return "sibling" if told == OF_SIBLING and where == "base" else where


def compute_centre(
    law: str, gpu: Hardware, weights: Weights, told: str = TOLD_ALL, kinship: str | None = None
) -> float:
    """How far the middle of one kernel's interval is above its predicted time, as a logarithm.

    Args:
        law: As for :func:`compute_half_width`, likewise the others.
        gpu: GPU that the kernel is predicted for.
        weights: Weights with the centres.
        told: What is told of the kernel's software.
        kinship: How the GPU that the kernel was measured on is related.
    """
    key, cell = _find_cell(law, gpu, weights, told, kinship)
    return weights.centres.get(key, {}).get(cell, 0.0)


def compute_shared_fraction(
    law: str, gpu: Hardware, weights: Weights, told: str = TOLD_ALL, kinship: str | None = None
) -> float:
    """Which fraction of one kernel's error the law's other kernels in a job share; arguments as of the centre."""
    key, cell = _find_cell(law, gpu, weights, told, kinship)
    return weights.shared.get(key, {}).get(cell, SHARED_ERROR_FRACTION)


def _find_cell(law: str, gpu: Hardware, weights: Weights, told: str, kinship: str | None) -> tuple[str, str]:
    """Law, by vendor, and the cell by which a kernel's interval goes."""
    key, where = get_width_key(law, gpu.gpu.vendor), _place_kernel(law, gpu, weights, told)
    known, carried = weights.intervals.get(key, {}), get_carried_key(kinship, where, told) if kinship else ""
    if carried in known and (kinship == "sibling" or known[carried] >= compute_half_width(law, gpu, weights, told)):
        return key, carried
    return key, told if where == "base" and told in known else where


def _compute_unfitted_vendor_width(law: str, weights: Weights) -> float:
    """Half-width on a GPU of a vendor of which no GPU was fitted, from those that other vendors' GPUs left out need."""
    usual = weights.intervals[law]["new"]
    others = [widths["new"] for key, widths in weights.intervals.items() if key.startswith(f"{law} on ")]
    products = law.split(" ")[0] in (*TENSOR_FAMILIES, *ATTENTION_LAWS)
    wide = [UNFITTED_VENDOR_FACTOR * usual, *(OTHER_VENDORS_MARGIN * other for other in others if products)]
    return max(usual, min(max(wide), MAX_UNFITTED_VENDOR_HALF_WIDTH))


def sum_with_interval(
    time_us: Floats,
    low_us: Floats,
    high_us: Floats,
    shared: Floats | float = SHARED_ERROR_FRACTION,
    family: Ints | None = None,
) -> tuple[float, float, float]:
    """The interval of a sum of kernels on one GPU.

    What a family's kernels share (how close the library gets to the datasheet there) adds up linearly, with that of
    other families by `FAMILY_CORRELATION`. The rest is taken as independent between kernels and adds up in squares.
    Repeats of one kernel have the same error, so pass each distinct kernel once, with its times multiplied by its
    number of launches.

    Args:
        time_us: Times.
        low_us: Low ends of their intervals.
        high_us: High ends.
        shared: Fraction of each kernel's error that its family shares.
        family: Number of each kernel's family, from 0; None where all are of one.

    Returns:
        Time, low and high of the sum, in microseconds.
    """
    time, ends = float(np.sum(time_us)), []
    for end in (low_us, high_us):
        apart = np.abs(np.asarray(end) - np.asarray(time_us))
        alone = np.sum((1 - np.square(shared)) * apart**2)
        of_families = np.bincount(np.zeros(apart.size, np.intp) if family is None else family, shared * apart)
        apart_by_family = (1 - FAMILY_CORRELATION) * np.sum(of_families**2)
        ends.append(float(np.sqrt(alone + apart_by_family + FAMILY_CORRELATION * np.sum(of_families) ** 2)))
    return time, max(time - ends[0], 0.0), time + ends[1]


FP32_CONV_LAWS = ("conv fp32", "gemm fp32")
"""By Winograd's algorithms too, or as a product only."""
SEQUENCE_EXTRA_HALF_WIDTH = 0.25
"""Half-width, as a logarithm, that attention over whole sequences has on top. It was fitted to benchmarks, whose
sequences are round and long; of 42 shapes of jobs, windows and a few tokens among them, 38 lie inside with it
(tests/validation/notes/kernels.md)."""
FP32_CONV_EXTRA_HALF_WIDTH = 0.6
"""The same of convolutions in fp32 that no algorithm of Winograd's suits. GEMMs were measured in their place, but cuDNN
takes one of many kernels: of 91 public times a quarter are off by more than a factor of two
(tests/validation/results/kernels/kernelbench.md; 84 % lie inside with it)."""
UNMEASURED_HALF_WIDTH = math.log(2.5)
"""The same of cuDNN's convolutions of groups and gradients of depthwise ones: of eight networks in nine of timm's
tables, by which the laws' constants were chosen, it holds 45 of 47 times left for groups."""
METHODS = ("measured", "law", "transfer", "inferred", "scaled", "kept", "unknown")
METHOD_MEASURED, METHOD_LAW, METHOD_TRANSFER, METHOD_INFERRED, METHOD_SCALED, METHOD_UNCHANGED, METHOD_UNKNOWN = range(
    len(METHODS)
)


class LogIntervals(NamedTuple):
    """Intervals of kernels, as logarithms, one element each.

    Attributes:
        half_width: Half-width.
        centre: How far the middle is above the predicted time.
        shared: Fraction of the error that the law's other kernels share.
    """

    half_width: Floats
    centre: Floats
    shared: Floats


def compute_log_intervals(
    kernels: KernelsByLaw, gpu: Hardware, weights: Weights, source: Hardware | None = None
) -> LogIntervals:
    """Return the intervals of kernels predicted from their shapes; 0 without one.

    Where a source is given, they are those of times that were measured there and carried over.
    """
    told = classify_told(kernels, gpu, weights)

    def find(cell: Callable[..., float]) -> Floats:
        found = _look_up_cells(cell, kernels, told, gpu, weights, source)
        if not kernels.is_on_mma.any():
            return found
        on_mma = _look_up_cells(cell, kernels, told, gpu.on_mma, weights, source and source.on_mma)
        return np.where(kernels.is_on_mma, on_mma, found)

    width, centre = find(compute_half_width), find(compute_centre)
    if source is None and _name_engines(kernels):
        width = np.hypot(width, _compute_software_spread(kernels, gpu, weights))
        own_width, own_centre = _find_release_intervals(kernels, gpu, weights)
        has_own = (own_width > 0) & (own_width >= width)
        width, centre = np.where(has_own, own_width, width), np.where(has_own, own_centre, centre)
    return LogIntervals(_widen_unmeasured(width, kernels, gpu, weights, source), centre, find(compute_shared_fraction))


def add_shared_error(half_width: Floats, shared: Floats, more: Floats) -> tuple[Floats, Floats]:
    """Add an independent error that all kernels share; returns half-widths and shared fractions.

    Args:
        half_width: Half-widths, as logarithms.
        shared: Fractions of these that a law's kernels share.
        more: Half-widths of the error, likewise.
    """
    both = np.hypot(half_width, more)
    together = np.hypot(shared * half_width, more)
    return both, np.divide(together, both, out=np.array(shared, dtype=np.float64), where=both > 0)


def _look_up_cells(
    cell: Callable[..., float],
    kernels: KernelsByLaw,
    told: CategoricalColumn,
    gpu: Hardware,
    weights: Weights,
    source: Hardware | None,
) -> Floats:
    """Return what a function makes of each kernel's law and of what is told of it; 0 without a law."""
    found, kinship = np.zeros(kernels.height), classify_kinship(source, gpu) if source else None
    for level in told.categories:
        at_level = partial(cell, gpu=gpu, weights=weights, told=str(level), kinship=kinship)
        of_level = kernels.law.map(lambda law: 0.0 if law is None else at_level(law))  # noqa: B023
        found = np.where(told.is_in(level), of_level, found)
    return found


def _widen_unmeasured(
    of_law: Floats, kernels: KernelsByLaw, gpu: Hardware, weights: Weights, source: Hardware | None
) -> Floats:
    """Widen the intervals of kernels that are unlike those that their law was fitted to.

    An fp32 convolution gets the wider interval of its two laws, because its shape does not determine cuDNN's algorithm.
    """
    laws = kernels.law
    of_law = np.where(laws.is_in("sequence"), np.hypot(of_law, SEQUENCE_EXTRA_HALF_WIDTH), of_law)
    if source is None:
        unmeasured = np.where(laws.is_in(*UNMEASURED_LAWS), UNMEASURED_HALF_WIDTH, 0.0)
        of_law = np.maximum(of_law, unmeasured)
    convolution = kernels.family.is_in("conv") & laws.is_in(*FP32_CONV_LAWS)
    if not convolution.any():
        return of_law
    less_sure = max(compute_half_width(law, gpu, weights) for law in FP32_CONV_LAWS)
    either = np.where(laws.is_in("gemm fp32"), np.hypot(less_sure, FP32_CONV_EXTRA_HALF_WIDTH), less_sure)
    return np.where(convolution, np.maximum(of_law, either), of_law)


def classify_told(kernels: KernelsByLaw, gpu: Hardware, weights: Weights) -> CategoricalColumn:
    """Return what is told of the software of each kernel: one of `TOLD_LEVELS`, all, or that of a sibling."""
    framework, engine = kernels.names["framework"], kernels.names["engine"]
    no_release = np.isnan(kernels.table["release"].to_numpy())
    of_engine = framework.is_in(*SERVING_FRAMEWORKS)
    fitted = _find_fitted(kernels, gpu, weights)
    levels = {
        NOTHING: framework.is_in(None),
        LIBRARY: engine.is_in(None),
        ENGINE: no_release & of_engine,
        UNVERSIONED: no_release,
        TOLD_ALL: fitted.exactly,
        RELEASE_ALONE: of_engine & fitted.of_release,
        OF_SIBLING: fitted.of_sibling,
        BETWEEN: fitted.between,
        NEW_RELEASE: fitted.known,
        NEW_LIBRARY: np.ones(kernels.height, dtype=np.bool_),
    }
    first_that_holds = np.argmax(list(levels.values()), axis=0)
    return CategoricalColumn(tuple(levels), first_that_holds).take(np.arange(kernels.height))


def _name_engines(kernels: KernelsByLaw) -> bool:
    return kernels.names["engine"].categories != (None,)


def _find_fitted(kernels: KernelsByLaw, gpu: Hardware, weights: Weights) -> Told:
    """Return what the fit knows of the kernels' engines, releases and libraries on a GPU."""
    told = Told.build_empty(kernels.height)
    for part in kernels.chunks if _name_engines(kernels) else ():
        of_law, on = weights.get_law(part.law), part.see(gpu)
        known = of_law.find_kernels(on), of_law.find_alike_kernels(on)
        for all_rows, of_part in zip(
            told, find_fitted(part.law, part.inputs.numbers, part.inputs.frameworks, *known), strict=True
        ):
            all_rows[part.rows] = of_part
    return told


def _find_release_intervals(kernels: KernelsByLaw, gpu: Hardware, weights: Weights) -> Floats:
    """Half-widths and centres of kernels whose engine's release has its own on a GPU (``get_cell_key``), else 0."""
    found = np.zeros((2, kernels.height))
    for part in kernels.chunks:
        on, key = part.see(gpu), get_width_key(part.law, gpu.gpu.vendor)
        engine, release = kernels.names["engine"].take(part.rows), kernels.table["release"].to_numpy()[part.rows]
        for of_release in np.unique(release[~np.isnan(release)]).tolist():
            for values, cells in zip(found, (weights.intervals, weights.centres), strict=True):
                own = cells.get(key, {})
                of_engine = engine.map(lambda name: own.get(get_cell_key(on.slug, name or "", of_release), 0.0))  # noqa: B023
                values[part.rows] = np.where(release == of_release, of_engine, values[part.rows])
    return found


def _compute_software_spread(kernels: KernelsByLaw, gpu: Hardware, weights: Weights) -> Floats:
    """Return ``model.compute_software_spread`` of a kernel table, 0 where a calibration measured the software."""
    spread = np.zeros(kernels.height)
    for part in kernels.chunks:
        on = part.see(gpu)
        if classify_situation(part.law, on, weights) != CALIBRATED:
            spread[part.rows] = compute_software_spread(part.inputs, part.law, on, weights)
    return spread


@dataclass(frozen=True)
class LaunchTimes:
    """Times of launches, one element each, in microseconds.

    Attributes:
        half_width: Half-width of its interval, as a logarithm.
        centre: How far the interval's middle is above the time, as a logarithm.
        shared: Fraction of its error that its law's other kernels share.
        method: Index into ``METHODS``.
        least_us: Where the interval begins at the earliest; NaN where nothing is known.
        most_us: Where it ends at the latest; likewise.
    """

    time_us: Floats
    half_width: Floats
    centre: Floats
    shared: Floats
    method: Ints
    least_us: Floats
    most_us: Floats


def build_result(alone: ModelTimes, row: Ints, launches: LaunchTimes, gpu: Hardware) -> pl.DataFrame:
    """A row for each launch, from what holds for its kernel and what its measurement makes of it.

    ``alone`` are predictions of the distinct kernels by the model alone; ``row`` is the index of the one that each
    launch is of.
    """
    bound, time, method = alone.bound_us[row], launches.time_us, launches.method
    kernels, demand_w = alone.kernels, compute_demand_w(alone.kernels, row, time, gpu)
    below, above = (np.maximum(launches.half_width + side * launches.centre, 0.0) for side in (-1, 1))
    least = np.fmax(np.nan_to_num(bound), launches.least_us)
    low = np.maximum(time * np.exp(-below), np.fmin(least, time))
    high = np.fmin(time * np.exp(above), np.maximum(launches.most_us, time))
    columns = {
        "time_us": time,
        "low_us": np.where(method == METHOD_MEASURED, time, low),
        "high_us": high,
        "bound_us": bound,
        "utilization": np.divide(bound, time, out=np.full(time.size, np.nan), where=time > 0),
        "power_w": limit_power_w(demand_w, gpu),
        "demand_w": demand_w,
        "shared_error": launches.shared,
    }
    limiter = pl.Series("limiter", LIMITERS)[alone.classify_limiters()[row]]
    return pl.DataFrame(
        [pl.Series(name, values, dtype=pl.Float64, nan_to_null=True) for name, values in columns.items()]
        + [limiter, pl.Series("method", METHODS)[method], kernels.runs_as[row]]
    )
