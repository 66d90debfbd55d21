"""Transfer a measured time to another GPU: how much of the model's error on the source applies to the target."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl

from predictors.arrays import Bools, CategoricalColumn, Floats, Ints, is_true
from predictors.gpu_order import is_no_worse
from predictors.hardware import Hardware
from predictors.kernels import DEPTHWISE_LAW, MEMORY_FAMILIES
from predictors.laws.law import EXPONENTIAL_LAWS, LAWS
from predictors.model import KernelsByLaw
from predictors.weights_file import Weights
from predictors.work import MATRIX_UNIT_LAWS, WINOGRAD_SAVING, compare_element_bytes

STACK = ("law", "named")
"""What tells a stack: its law, and whether its software is named."""
PSEUDO_COUNT = 4.0
"""A stack's offset is trusted like this many kernels' worth of measurements says zero."""
MAX_LAW_LOG_ERROR = math.log(2.0)
"""Beyond a factor of two the law doesn't describe the kernel; what goes beyond is carried over whole."""


@dataclass(frozen=True)
class KernelErrors:
    """What the model misses of kernels on their source.

    Attributes:
        table: ``law``, ``named`` and ``error`` of each measured kernel: the logarithm of measured over modelled time,
            within ``MAX_LAW_LOG_ERROR``.
        calibrated: The same where the model is calibrated for the source; None without calibrations.
        has_calibrated: Whether calibrations say something of these kernels on the source, and on the target.
    """

    table: pl.DataFrame
    calibrated: pl.DataFrame | None
    has_calibrated: tuple[bool, bool]


@dataclass(frozen=True)
class StackErrors:
    """What the model misses of stacks on their source, of a job whose kernels are predicted in parts.

    Attributes:
        medians: ``law``, ``named``, ``median`` of the errors of all the job's kernels, and ``count`` of these.
        is_calibrated: Whether the errors are those of the model calibrated for the source.
    """

    medians: pl.DataFrame
    is_calibrated: bool = False


def tabulate_errors(kernels: KernelsByLaw, row: Ints, log_ratio: Floats) -> pl.DataFrame:
    """Tabulate the errors of measured kernels, as in :class:`KernelErrors`.

    ``kernels`` are distinct ones as they run on the source, of which ``row`` says for each measurement which it is of;
    ``log_ratio`` is log(measured / modelled), NaN where there is no measurement.
    """
    known = ~np.isnan(log_ratio)
    error = clip_errors(log_ratio[known])
    stacks = pl.DataFrame([kernels.table["law"], pl.Series("named", kernels.is_of_stack)])
    return stacks[row[known]].hstack([pl.Series("error", error)])


Errors = TypeVar("Errors", Floats, pl.Expr)


def clip_errors(log_ratio: Errors) -> Errors:
    """Return what of errors the law describes."""
    return log_ratio.clip(-MAX_LAW_LOG_ERROR, MAX_LAW_LOG_ERROR)


def compute_medians(errors: pl.DataFrame) -> pl.DataFrame:
    """Compute the median error and the count of each stack, from what :func:`tabulate_errors` returns."""
    return errors.group_by(STACK).agg(median=pl.col("error").median(), count=pl.len())


def compute_stack_offsets(kernels: KernelsByLaw, medians: pl.DataFrame) -> Floats:
    """Return the part of the errors that each distinct kernel shares with its stack; 0 where nothing is known.

    ``kernels`` are distinct ones as they run on the source; ``medians`` are from :func:`compute_medians`.
    """
    count = medians["count"].to_numpy()
    shrunk = medians["median"].to_numpy() * (count / (count + PSEUDO_COUNT))
    found = np.zeros(kernels.height)
    for law, named, offset in zip(medians["law"], medians["named"], shrunk, strict=True):
        found[kernels.law.is_in(law) & (kernels.is_of_stack == named)] = offset
    return found


KERNEL_EXPONENTS = {"sibling": 0.7, "class": 0.4, "other": 0.15, "vendor": 0.1}
"""Exponent of a kernel's own part where the data has no pairs of such GPUs (study of modern GPUs, section 2)."""
STACK_EXPONENTS = {"sibling": 0.95, "class": 0.75, "other": 0.5, "vendor": 0.25}
"""Exponent of the offset of a software stack the weights don't know (section 5)."""
UNFITTED_EXPONENTS = {"sibling": 0.95, "class": 0.8, "other": 0.6, "vendor": 0.25}
"""Exponent of a kernel's own part where the law or, but for products, the kernel's framework was never fitted: most
of it is work that the law doesn't count, such as strided reads, and that goes where the kernel goes."""
BOARD_HALF_WIDTH = 0.05
"""How far boards of one die are apart, as a logarithm: 5 % and more on one node (stas00/ml-engineering, silicon
lottery)."""
SIBLING_HALF_WIDTH = 0.15
"""How far beyond the ratio of the resource that differs most siblings' times lie, as a logarithm. Of PyTorch's kernels
from 20 us on, recorded on an H100 and an H200, none of 5,300 does; of those that engines ran in one version on pairs of
H100, H200, B200, B300, GB200 and GB300 it holds prefill attention 99 %, decode 92 to 99 %, GEMMs 87 to 98 %, MoE 87 to
98 % (aiconfigurator at 095f58a5)."""
ARCHITECTURE_HALF_WIDTH = 0.5
"""The same between architectures of one vendor, for libraries' kernels; PyTorch's own change more with its version. Of
engines' GEMMs, MoE and prefill attention on pairs of A100, L40S, H100, B200 and RTX PRO 6000, 0 to 10 % lie beyond it
on either side, mostly under 3 % (aiconfigurator at 095f58a5); of fp32 operators on pairs of P4, P100, V100, T4 and
A100, 0 to 12 %, mostly under 3 % (NeuSight)."""
ORDERED_HALF_WIDTH = math.log(1.1)
"""The same on a GPU that is better in everything. More than 1.1 times as long as on an A100 took 0 to 0.5 % of engines'
kernels on an H100 and 0.1 to 1.4 % on a B200; as on an H100, on a B200, 1 % of GEMMs in bf16, 7 % in fp8, 2 % of
prefill, 4 % of MoE; as on an H100, on an H200, 1 to 4 %."""
LAWS_CHOSEN_ANEW = ("encoder",)
"""Laws of kernels that an engine chooses anew for each GPU of an architecture: there it holds 57 to 99 %."""
DECODING_LAWS = ("decode", "latent")
"""Laws of kernels that better GPUs may run more slowly: on a B200, 56 % took more than 1.1 times as long as on an H100,
as 30 % of encoders' attention and 45 % of block-scaled GEMMs did. So did 67 % of MIOpen's convolutions on an MI300X and
an MI210 (its find databases)."""
WINOGRAD_LAW = "conv fp32"
"""Law of convolutions that Winograd's algorithms save multiplications of; in other formats there are none."""
LIBRARY_LAWS = (*MATRIX_UNIT_LAWS, DEPTHWISE_LAW)
"""Laws whose kernels come from a vendor's libraries; the others' are PyTorch's own, the same code on every GPU."""


@dataclass(frozen=True)
class SourceErrors:
    """What the model missed on the source, as logarithms, one element a row; their sum is all of it.

    Attributes:
        stack: Part that all kernels of one law and software stack have in common.
        kernel: Part of each kernel alone.
        excess: Part beyond ``MAX_LAW_LOG_ERROR``.
        kernels: Distinct kernels as they run on the source.
    """

    stack: Floats
    kernel: Floats
    excess: Floats
    kernels: KernelsByLaw


def split_source_errors(
    kernels: KernelsByLaw, row: Ints, log_ratio: Floats, medians: pl.DataFrame | None = None
) -> SourceErrors:
    """Splits the logarithm of measured over modelled time on the source.

    As in :func:`tabulate_errors`; ``medians`` are of all kernels of a job that these are part of (``compute_medians``),
    by default of these.
    """
    if medians is None:
        medians = compute_medians(tabulate_errors(kernels, row, log_ratio))
    typical = clip_errors(log_ratio)
    offset = np.where(np.isnan(log_ratio), 0.0, compute_stack_offsets(kernels, medians)[row])
    return SourceErrors(offset, np.nan_to_num(typical - offset), np.nan_to_num(log_ratio - typical), kernels)


def compute_target_correction(
    errors: SourceErrors, kernels: KernelsByLaw, row: Ints, source: Hardware, target: Hardware, weights: Weights
) -> Floats:
    """Return the addition to the logarithm of the model's time on the target.

    The offset of a stack and a kernel's own error each transfer with an exponent. It is near 1 between siblings, which
    run the same kernels, and 0 for a GEMM that runs on other units on the target (in TF32 on an A100, in fp32 on a
    V100).

    ``kernels`` are distinct ones as they run on the target, of which ``row`` says for each measurement which it is of.
    """
    kinship = classify_kinship(source, target)
    own, shared = _select_exponents(kernels, errors.kernels, kinship, weights)
    # Kernels made for an A100's matrix units are the same on any GPU that has them.
    older = kernels.is_on_mma | errors.kernels.is_on_mma
    if older.any():
        kinship_of_older = classify_kinship(source.on_mma, target.on_mma)
        of_older = _select_exponents(kernels, errors.kernels, kinship_of_older, weights)
        own, shared = np.where(older, of_older[0], own), np.where(older, of_older[1], shared)
    beyond = np.where(_has_law_kind(LIBRARY_LAWS, kernels.law), own, 1.0) if kinship == "vendor" else np.ones_like(own)
    # The target's calibration has its stack's offset in it already, where the source has none to compare with.
    known = kernels.find_calibrated(target, weights) & ~errors.kernels.find_calibrated(source, weights)
    shared = np.where(known, 0.0, shared)
    return np.asarray(errors.stack * shared[row] + errors.kernel * own[row] + errors.excess * beyond[row])


def classify_kinship(source: Hardware, target: Hardware) -> str:
    """'sibling' (same kernels), 'class' (same kind of matrix units), 'other' or 'vendor' (another vendor's)."""
    if source.gpu.vendor != target.gpu.vendor:
        return "vendor"
    if source.architecture == target.architecture:
        return "sibling"
    return "class" if source.tensor_class == target.tensor_class else "other"


def _select_exponents(
    kernels: KernelsByLaw, there: KernelsByLaw, kinship: str, weights: Weights
) -> tuple[Floats, Floats]:
    """Exponents of a kernel's own part and of its stack's offset.

    Errors of GEMMs under one law say nothing about another law: between fp8 and half precision, on equal shapes of
    held-out GPUs, the correlation is -0.1 to 0.1.
    """
    laws, known = kernels.law, kernels.is_of_stack
    fitted = {law: e[kinship] for law, e in weights.transfer.items() if kinship in e}
    unfitted = {law: UNFITTED_EXPONENTS[kinship] for law in LAWS if law not in weights.laws}
    chosen = fitted | unfitted | {"memcpy": 1.0}
    own = laws.map(lambda law: chosen.get(law or "", KERNEL_EXPONENTS[kinship]))
    product = _has_law_kind(LIBRARY_LAWS if kinship == "vendor" else ("gemm",), laws)
    unknown = np.maximum(own, np.where(product, KERNEL_EXPONENTS[kinship], UNFITTED_EXPONENTS[kinship]))
    other_units = _has_law_kind(("gemm",), laws) & ~kernels.have_law_of(there)
    own, shared = np.where(known, own, unknown), np.where(known, own, np.maximum(unknown, STACK_EXPONENTS[kinship]))
    return np.where(other_units, 0.0, own), np.where(other_units, 0.0, shared)


def _has_law_kind(kinds: Collection[str], laws: CategoricalColumn) -> Bools:
    return laws.map(lambda law: law is not None and law.split(" ")[0] in kinds)


def enforce_dominance(
    time_us: Floats, measured_us: Floats, dtypes: CategoricalColumn, source: Hardware, target: Hardware
) -> Floats:
    """Adjust predicted times so that a GPU is never slower than one that it equals or exceeds in every resource.

    ``measured_us`` is what is known of the source, NaN where unknown; ``dtypes`` are those on both.
    """
    rank = compare_gpus(target, source)
    if not any(rank):
        return time_us
    rate = dtypes.map(lambda dtype: target.get_tflops(dtype) / source.get_tflops(dtype))
    if rank.better:
        time_us = np.where(rate >= 1, np.fmin(time_us, measured_us), time_us)
    if rank.worse:
        time_us = np.where(rate <= 1, np.fmax(time_us, measured_us), time_us)
    return time_us


def compute_sibling_ratios(kernels: KernelsByLaw, source: Hardware, target: Hardware) -> tuple[Floats, Floats]:
    """Return the least and the largest ratio of distinct kernels' times on a sibling to those on the source.

    The times of copies over a link have no limits.
    """
    rate = _compare_rates(kernels, kernels, source, target)
    least, most = target.bound_time_ratio(source, rate, _has_law_kind(EXPONENTIAL_LAWS, kernels.law))
    copies = kernels.law.is_in("memcpy")
    return np.where(copies, 0.0, least), np.where(copies, np.inf, most)


def compute_interval_ends(
    kernels: KernelsByLaw, there: KernelsByLaw, source: Hardware, target: Hardware
) -> tuple[Floats, Floats]:
    """Return the ends of intervals on a target as ratios to the times on the source; NaN where there are none.

    No kernel gains or loses much more than the resource that differs most, and none is much slower on a GPU that is
    better in everything. That holds of the measurements of one vendor (``ORDERED_HALF_WIDTH``), but for kernels that
    are chosen anew (``_are_chosen_anew``).

    ``kernels`` are distinct ones as they run on the target, ``there`` the same as they run on the source.
    """
    if source.gpu.vendor != target.gpu.vendor:
        none = np.full(kernels.height, np.nan)
        return none, none
    siblings = source.architecture == target.architecture
    least, most = (
        compute_sibling_ratios(kernels, source, target) if siblings else _bound_ratios(kernels, there, source, target)
    )
    rank, ordered = compare_gpus(target, source), ~kernels.law.is_in(*DECODING_LAWS)
    of_library = _has_law_kind(LIBRARY_LAWS, kernels.law)
    beyond = SIBLING_HALF_WIDTH if siblings else np.where(of_library, ARCHITECTURE_HALF_WIDTH, np.inf)
    below, above = (
        np.where(ordered & no_worse & alike, ORDERED_HALF_WIDTH, beyond)
        for no_worse, alike in ((rank.worse, least >= 1), (rank.better, most <= 1))
    )
    chosen_anew = _are_chosen_anew(kernels, there, source, siblings=siblings)
    ends = least * np.exp(-below), most * np.exp(above)
    return np.where(chosen_anew, np.nan, ends[0]), np.where(chosen_anew, np.nan, ends[1])


def _bound_ratios(
    kernels: KernelsByLaw, there: KernelsByLaw, source: Hardware, target: Hardware
) -> tuple[Floats, Floats]:
    """Return the least and the largest ratio of times by the resource that differs most, in the formats on each."""
    rate = _compare_rates(kernels, there, source, target)
    spared = np.where(there.law.is_in(WINOGRAD_LAW), WINOGRAD_SAVING, 1.0)
    spares = np.where(kernels.law.is_in(WINOGRAD_LAW), WINOGRAD_SAVING, 1.0)
    exponentials = _has_law_kind(EXPONENTIAL_LAWS, kernels.law)
    least = target.bound_time_ratio(source, rate * spares, exponentials)[0]
    most = target.bound_time_ratio(source, rate / spared, exponentials)[1]
    wider = compare_element_bytes(there.dtype, kernels.dtype)
    copies = kernels.law.is_in("memcpy")
    least, most = least * np.fmin(wider, 1.0), most * np.fmax(wider, 1.0)
    return np.where(copies, 0.0, least), np.where(copies, np.inf, most)


def _compare_rates(kernels: KernelsByLaw, there: KernelsByLaw, source: Hardware, target: Hardware) -> Floats:
    """Return the target's rate of the arithmetic over the source's; 1 for kernels that go through memory.

    These follow the rate in fp64 only, which may be a 64th of that in fp32.
    """
    rate = kernels.dtype.map(target.get_tflops) / there.dtype.map(source.get_tflops)
    passes = kernels.family.is_in(*MEMORY_FAMILIES, "memcpy")
    return np.where(passes & ~kernels.dtype.is_in("fp64"), 1.0, rate)


def _are_chosen_anew(kernels: KernelsByLaw, there: KernelsByLaw, source: Hardware, *, siblings: bool) -> Bools:
    """Return which kernels are others on the target, so that resources tell little of their ratio.

    Between architectures they are those of decoding, of encoders and of block-scaled fp8, and of AMD's libraries.
    """
    if siblings:
        return kernels.law.is_in(*LAWS_CHOSEN_ANEW)
    anew = (*LAWS_CHOSEN_ANEW, *DECODING_LAWS, "gemm fp8_block")
    decoding = kernels.family.is_in("attention") & is_true(kernels.table["split_k"])
    block_scaled = kernels.family.is_in("gemm") & is_true(kernels.table["asked"] == "fp8_block")
    without_law = kernels.law.is_in(None) & (decoding | block_scaled)
    chosen = kernels.law.is_in(*anew) | there.law.is_in(*anew) | without_law
    return np.asarray(chosen | (_has_law_kind(LIBRARY_LAWS, kernels.law) & (source.gpu.vendor != "nvidia")))


def keep_host_copy_overhead(
    time_us: Floats, measured_us: Floats, errors: SourceErrors, alone_us: Floats, kernels: KernelsByLaw, row: Ints
) -> Floats:
    """Keep the time that copies to and from the host took beyond the time of their link.

    The host causes that time: memory that is not pinned is first copied into a buffer.

    ``time_us`` is predicted on the target, ``alone_us`` by the model alone; ``measured_us`` is that of the source, NaN
    where unknown; ``row`` is which of the distinct kernels each row is.
    """
    if not kernels.is_host_copy.any():
        return time_us
    copies = np.flatnonzero(kernels.is_host_copy[row])
    missed_there = errors.stack[copies] + errors.kernel[copies] + errors.excess[copies]
    beyond_us = measured_us[copies] * (1 - np.exp(-missed_there))
    kept = time_us.copy()
    kept[copies] = np.where(beyond_us > 0, alone_us[copies] + beyond_us, time_us[copies])
    return kept


def cap_same_die_interval(
    width: Floats, measured_us: Floats, kernels: KernelsByLaw, row: Ints, source: Hardware, target: Hardware
) -> Floats:
    """Cap the half-widths of intervals between GPUs of the same die at the difference between boards.

    The half-widths are logarithms; ``measured_us`` is that of the source, NaN where unknown; ``row`` is the index of
    the distinct kernel of each row. Export limits reduce links and fp64, so those rows are left unchanged.
    """
    if not _is_same_die(source, target):
        return width
    other = (kernels.law.is_in("memcpy") | kernels.dtype.is_in("fp64"))[row]
    return np.where(other | np.isnan(measured_us), width, np.minimum(width, BOARD_HALF_WIDTH))


def _is_same_die(one: Hardware, other: Hardware) -> bool:
    """Whether two GPUs differ in their links, fp64 or memory's size at most, as A100 and A800 do."""
    first, second = ((m.architecture, m.sms, m.get_tflops("fp16")) for m in (one, other))
    return first == second and dominates(one, other) and dominates(other, one)


class Rank(NamedTuple):
    """How a GPU compares with another.

    Attributes:
        better: Whether it is at least as good in everything.
        worse: Whether the other one is.
    """

    better: bool
    worse: bool


def compare_gpus(one: Hardware, other: Hardware) -> Rank:
    """Compare two GPUs, by what they deliver or by their datasheets."""
    return Rank(
        dominates(one, other) or is_no_worse(one.gpu, other.gpu),
        dominates(other, one) or is_no_worse(other.gpu, one.gpu),
    )


def dominates(one: Hardware, other: Hardware) -> bool:
    """Whether a GPU has at least the other's clock, vector rate, exponentials, memory rate, cache and power budget.

    Only GPUs of one vendor are compared, because libraries and launch times differ between vendors: an MI300X exceeds
    an H100 in every resource and ran the attention of the same jobs three times slower.
    """
    rates = (
        *("clock_mhz", "vector_tflops", "exponentials_per_clock"),
        *("bandwidth_gbps", "written_gbps", "cache_bytes", "cache_gbps"),
    )
    no_less = all(getattr(one, rate) >= getattr(other, rate) for rate in rates)
    return no_less and one.gpu.tdp_w >= other.gpu.tdp_w and one.gpu.vendor == other.gpu.vendor
