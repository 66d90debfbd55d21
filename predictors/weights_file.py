"""Load and save the fitted weights: constants of each law, learned corrections, interval widths."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from predictors.arrays import Floats, Frameworks
from predictors.corrections import CorrectionFile, SymmetricTrees, to_arrays
from predictors.errors import WeightsError
from predictors.fitted_kernels import FittedKernels, ReleasesByGpu, join_kernels
from predictors.gaussian_process import ErrorSpread, GaussianProcessCorrection, build_default_spread
from predictors.gpu_names import load_gpu
from predictors.gpu_order import GpuOrder, load_gpu_order
from predictors.hardware import MMA_SUFFIX, Hardware, derive_hardware
from predictors.kernel_identity import BENCHMARK_LOOP
from predictors.laws.gemm import models_power
from predictors.laws.law import LAWS, SUBSTITUTE_LAWS
from predictors.laws.terms import Constants
from predictors.work import uses_matrix_units

SHIPPED_WEIGHTS = Path(__file__).parent / "weights"
WEIGHTS_FORMAT = 3

MAX_TWIN_SM_DIFFERENCE = 0.06
"""How far the SM counts of twins may differ."""
CLOCK_POWER_EXPONENT = 0.4
"""Sustained clock against power budget between siblings: dynamic power goes with the clock times voltage squared,
and voltage nearly with the clock, so the clock goes with power to the 1/2.5."""

OffsetTable = dict[str, dict[str, float]]


@dataclass(frozen=True)
class LawConstants:
    """The constants of one law, all as logarithms.

    Attributes:
        base: Constant -> value.
        tensor_class: Class of matrix units -> constant -> offset.
        gpu: Slug -> constant -> offset of this GPU from its datasheet.
        framework: Framework -> constant -> offset.
        stack: 'class/framework' -> constant -> offset of the kernels that a framework has for a class of matrix units.
        architecture: Architecture -> constant -> mean offset of its GPUs, used for their siblings; and, as ``watts``,
            the mean logarithm of their ``watts_per_tflops``.
        sparse: GPUs with so few measured kernels that their interval is that of unmeasured GPUs.
        rated: Slug -> constant -> offset, of GPUs for which only the rate of large GEMMs was published.
        taught: GPUs with enough measurements to train the corrections for unmeasured GPUs.
        releases: Slug -> 'table/engine/library' -> measured releases, as numbers, oldest first.
    """

    base: dict[str, float]
    tensor_class: OffsetTable = field(default_factory=dict)
    gpu: OffsetTable = field(default_factory=dict)
    framework: OffsetTable = field(default_factory=dict)
    stack: OffsetTable = field(default_factory=dict)
    architecture: OffsetTable = field(default_factory=dict)
    sparse: Sequence[str] = ()
    rated: OffsetTable = field(default_factory=dict)
    taught: Sequence[str] = ()
    releases: ReleasesByGpu = field(default_factory=dict)

    @functools.cached_property
    def well_measured(self) -> Mapping[str, Hardware]:
        """GPUs, by slug, that were measured on enough kernels to tell how far off a prediction for them may be."""
        return {slug: load_hardware(slug) for slug in self.gpu if slug not in self.sparse}

    def find_kernels(self, gpu: Hardware) -> FittedKernels:
        """Return the engines' kernels that were measured on a GPU; of one without any, on those most like it."""
        return FittedKernels(self.releases[gpu.slug]) if gpu.slug in self.releases else self.find_alike_kernels(gpu)

    def find_alike_kernels(self, gpu: Hardware) -> FittedKernels:
        """Return the engines' kernels that were measured on the GPUs of an architecture; else of the vendor, or any."""
        if gpu.architecture not in self._kernels_by_architecture:
            by_gpu = {load_hardware(slug): of for slug, of in self.releases.items()}
            alike = [of for one, of in by_gpu.items() if one.architecture == gpu.architecture]
            of_vendor = [of for one, of in by_gpu.items() if one.gpu.vendor == gpu.gpu.vendor]
            self._kernels_by_architecture[gpu.architecture] = join_kernels(alike or of_vendor or by_gpu.values())
        return self._kernels_by_architecture[gpu.architecture]

    @functools.cached_property
    def _kernels_by_architecture(self) -> dict[str, FittedKernels]:
        return {}

    def compute_constants(
        self,
        gpu: Hardware,
        frameworks: Frameworks = None,
        calibrated: Mapping[str, float] | None = None,
    ) -> Constants:
        """Return the law's constants on a GPU; arrays with one element per row where frameworks shift them."""
        log: dict[str, Floats | float] = dict(self.base)
        for effects in (self.tensor_class.get(gpu.tensor_class, {}), self.get_offset(gpu), calibrated or {}):
            for name, value in effects.items():
                log[name] = log[name] + value
        for framework, part in self.compute_framework_weights(frameworks).items():
            more = self.stack.get(f"{gpu.tensor_class}/{framework}", {})
            for name, value in self.framework[framework].items():
                log[name] = log[name] + (value + more.get(name, 0.0)) * part
        return {name: np.exp(value) for name, value in log.items()}

    def compute_framework_weights(self, frameworks: Frameworks) -> dict[str, Floats | float]:
        """How much of each framework's effects each row has: of one without a known name, what all have in common."""
        if not self.framework:
            return {}
        common = 1 / len(self.framework)
        if frameworks is None:
            return dict.fromkeys(self.framework, common)
        is_of = {name: np.equal(frameworks, name) for name in self.framework}
        unnamed = common * ~np.logical_or.reduce([*is_of.values(), np.equal(frameworks, BENCHMARK_LOOP)]).astype(bool)
        return {name: np.where(own, 1.0, unnamed) for name, own in is_of.items()}

    def get_offset(self, gpu: Hardware) -> dict[str, float]:
        """A GPU's own offset; of a GPU nobody measured, its siblings' and what its power budget or its rate says."""
        if gpu.slug in self.gpu:
            return self.gpu[gpu.slug]
        kin = self.architecture.get(gpu.architecture, {})
        offset = {name: value for name, value in kin.items() if name != "watts"}
        if kin and not models_power(self.base, gpu):
            power = CLOCK_POWER_EXPONENT * (np.log(gpu.watts_per_tflops) - kin["watts"])
            offset["compute"] = offset.get("compute", 0.0) + float(np.clip(power, -0.4, 0.2))
        return offset | self._get_rated_offset(gpu)

    def _get_rated_offset(self, gpu: Hardware) -> dict[str, float]:
        """The offset of a GPU by its published rate, or by that of one from which its memory alone differs."""
        if gpu.slug in self.rated:
            return self.rated[gpu.slug]
        same = (slug for slug in self.rated if load_hardware(slug).computes_like(gpu))
        return self.rated.get(next(same, ""), {})


@dataclass(frozen=True)
class LawCalibration:
    """What measurements on a GPU add to a law there.

    Attributes:
        offset: Constant -> addition to the GPU's own offset.
        trust: Addition to the fraction of the learned correction that applies.
        architectures: Architecture -> how much of its learned correction takes the place of the one of all GPUs.
        gaussian_process: Correction near the measured shapes; None if only other laws were measured.
    """

    offset: dict[str, float]
    trust: float = 0.0
    architectures: dict[str, float] = field(default_factory=dict)
    gaussian_process: GaussianProcessCorrection | None = None


@dataclass(frozen=True)
class Weights:
    """All fitted numbers.

    Attributes:
        laws: Law -> constants.
        corrections: 'architecture/law' -> learned correction for the GPUs of that architecture; 'all/law' -> learned
            correction for GPUs without a measured sibling.
        intervals: Law -> situation -> half-width of the 90 % interval, as a logarithm.
        centres: The same keys -> how far the interval's middle is above the predicted time, as a logarithm; missing
            where it is the predicted time.
        shared: The same keys -> the fraction of a kernel's error that its law's other kernels in a job share.
        transfer: Law -> kinship of two GPUs -> exponent of the measured error.
        spreads: Law -> expected errors on a GPU that was left out; the prior of a calibration.
        calibrated: (law, slug) -> calibration on that GPU.
        order: Which GPUs are no worse than others, and where these numbers contradict it.
    """

    laws: dict[str, LawConstants]
    corrections: Mapping[str, SymmetricTrees] = field(default_factory=dict)
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)
    centres: dict[str, dict[str, float]] = field(default_factory=dict)
    shared: dict[str, dict[str, float]] = field(default_factory=dict)
    transfer: dict[str, dict[str, float]] = field(default_factory=dict)
    spreads: dict[str, ErrorSpread] = field(default_factory=dict)
    calibrated: dict[tuple[str, str], LawCalibration] = field(default_factory=dict)
    order: GpuOrder = field(default_factory=GpuOrder)

    def list_calibrated_laws(self, gpu: Hardware) -> list[str]:
        """List the laws of which measurements on a GPU say something."""
        return [law for law, slug in self.calibrated if slug == gpu.slug]

    def get_law(self, name: str) -> LawConstants:
        """The constants of a law, borrowed where nothing was measured, its priors where nothing can be."""
        for candidate in (name, SUBSTITUTE_LAWS.get(name, name)):
            if candidate in self.laws:
                return self.laws[candidate]
        return LawConstants({constant: float(np.log(prior[0])) for constant, prior in LAWS[name].priors.items()})

    def get_spread(self, name: str) -> ErrorSpread:
        """How far a GPU may be off a law, borrowed or as usual where nothing was left out."""
        for candidate in (name, SUBSTITUTE_LAWS.get(name, name)):
            if candidate in self.spreads:
                return self.spreads[candidate]
        return build_default_spread(name, LAWS[name].priors)

    def find_twin(self, law: str, gpu: Hardware) -> Hardware | None:
        """A measured GPU with the same architecture and nearly as many SMs, which runs a kernel block by block alike.

        A GPU that has a twin uses the corrections of the twin. So a better memory alone never makes it slower.
        """
        measured = self.laws[law].gpu if law in self.laws else {}
        if gpu.slug in measured:
            return None
        candidates = [load_hardware(slug) for slug in sorted(measured)]
        twins = [
            m
            for m in candidates
            if m.architecture == gpu.architecture and abs(m.sms / gpu.sms - 1) < MAX_TWIN_SM_DIFFERENCE
        ]
        return min(twins, key=lambda m: abs(m.bandwidth_gbps - gpu.bandwidth_gbps), default=None)

    def get_correction(self, law: str, gpu: Hardware) -> SymmetricTrees | None:
        """The correction of a law on a GPU: its architecture's, which siblings share, or else the general one."""
        own = self.corrections.get(f"{gpu.architecture}/{law}") if self.has_sibling(law, gpu) else None
        return own or self.corrections.get(f"all/{law}")

    def list_other_corrections(self, law: str, gpu: Hardware) -> dict[str, SymmetricTrees]:
        """List the corrections of a law by architecture that a GPU may be like: all, for one without a sibling."""
        if self.has_sibling(law, gpu) or self.is_trained_on(law, gpu) or f"all/{law}" not in self.corrections:
            return {}
        by_law = ((key.partition("/"), trees) for key, trees in self.corrections.items())
        return {who: trees for (who, _, of_law), trees in by_law if of_law == law and who != "all"}

    def is_trained_on(self, law: str, gpu: Hardware) -> bool:
        """Whether the correction of a law on a measured GPU learned from it or from others of its architecture."""
        fitted = self.get_law(law)
        own = gpu.slug in fitted.gpu and f"{gpu.architecture}/{law}" in self.corrections
        return own or gpu.slug in fitted.taught

    def has_sibling(self, law: str, gpu: Hardware) -> bool:
        """Whether a GPU of its architecture, with matrix units like its own, was measured for a law.

        For GEMMs that are limited by board power, the sibling must have as many SMs: on an L40S large ones reach a
        sixth less than medium ones, which does not happen on boards with more power per SM.
        """
        fitted = self.get_law(law)
        known = fitted.well_measured.values()
        if not any(gpu.architecture == one.architecture and are_limited_alike(law, gpu, one) for one in known):
            return False
        alone = gpu.slug not in fitted.gpu and self.find_twin(law, gpu) is None
        return not (alone and models_power(fitted.base, gpu))


def are_limited_alike(law: str, one: Hardware, other: Hardware) -> bool:
    """Return whether the same resources limit a law's kernels on two GPUs of one class, as far as rates tell."""
    on_tensor_cores = uses_matrix_units(law) and not law.endswith("fp32") and one.gpu.vendor == "nvidia"
    return not on_tensor_cores or one.has_matrix_units_like(other)


def shipped_sha256() -> str:
    """What tells the fitted numbers that ship from any others."""
    return hashlib.sha256((SHIPPED_WEIGHTS / "weights.json").read_bytes()).hexdigest()


def load_weights(folder: str | Path | None = None) -> Weights:
    """Load weights from a folder; by default those that ship.

    Raises:
        WeightsError: The folder has no readable weights, or weights of another format.
    """
    return _read_weights(Path(folder) if folder is not None else SHIPPED_WEIGHTS)


def save_weights(weights: Weights, folder: Path) -> None:
    """Write ``weights.json`` and ``corrections.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    laws = {name: {f.name: getattr(fitted, f.name) for f in fields(fitted)} for name, fitted in weights.laws.items()}
    text = {"format": WEIGHTS_FORMAT, "laws": laws, "intervals": weights.intervals, "transfer": weights.transfer}
    text |= {"centres": weights.centres, "shared": weights.shared}
    text |= {"spreads": {name: vars(spread) for name, spread in weights.spreads.items()}}
    (folder / "weights.json").write_text(json.dumps(_round_floats(text), indent=1, sort_keys=True) + "\n")
    learned = [to_arrays(name, correction) for name, correction in weights.corrections.items()]
    arrays: dict[str, Any] = {name: array for of_one in learned for name, array in of_one.items()}
    np.savez_compressed(folder / "corrections.npz", **arrays)
    _read_weights.cache_clear()


@functools.cache
def load_hardware(slug: str) -> Hardware:
    """The GPU that a slug of the weights means: as it is, or as kernels made for an A100's matrix units see it."""
    board = derive_hardware(load_gpu(slug.removesuffix(MMA_SUFFIX)))
    return board.on_mma if slug.endswith(MMA_SUFFIX) else board


@functools.lru_cache(maxsize=8)
def _read_weights(folder: Path) -> Weights:
    try:
        text = json.loads((folder / "weights.json").read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"no readable weights.json in {folder}: {error}") from error
    if text.get("format") != WEIGHTS_FORMAT:
        raise WeightsError(f"{folder}: weights of format {text.get('format')}, this version reads {WEIGHTS_FORMAT}")
    corrections = folder / "corrections.npz"
    return Weights(
        laws={name: LawConstants(**fitted) for name, fitted in text["laws"].items()},
        corrections=CorrectionFile(corrections) if corrections.exists() else {},
        intervals=text["intervals"],
        centres=text.get("centres", {}),
        shared=text.get("shared", {}),
        transfer=text["transfer"],
        spreads={name: ErrorSpread(**spread) for name, spread in text.get("spreads", {}).items()},
        order=load_gpu_order(folder),
    )


def _round_floats(value: object) -> object:
    if isinstance(value, dict):
        return {str(k): _round_floats(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_round_floats(v) for v in value]
    return round(value, 5) if isinstance(value, float) else value
