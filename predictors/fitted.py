"""Fitted numbers and where they are kept: the constants of each law, the trees, the interval widths."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats, Frameworks
from predictors.errors import WeightsError
from predictors.gpu_names import load_gpu
from predictors.law import LAWS, STAND_INS
from predictors.laws.products import knows_power
from predictors.machine import ON_MMA, Machine, machine
from predictors.residual import Correction, StoredCorrections, arrays_of
from predictors.surface import Spread, Surface, usual_spread
from predictors.terms import Constants

SHIPPED = Path(__file__).parent / "weights"
FORMAT = 1

TWIN_SMS = 0.06
"""How far the SM counts of twins may differ."""
POWER_EXPONENT = 0.4
"""Sustained clock against power budget between siblings: dynamic power goes with the clock times voltage squared,
and voltage nearly with the clock, so the clock goes with power to the 1/2.5."""

Effects = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Fitted:
    """The constants of one law, all as logarithms.

    Attributes:
        base: constant -> value.
        tensor_class: class of GPUs -> constant -> what it adds.
        gpu: slug -> constant -> what it adds; the offset of a GPU from its datasheet.
        framework: framework -> constant -> what it adds.
        stack: 'class/framework' -> constant -> what it adds: the kernels a framework has for a class.
        architecture: architecture -> constant -> mean offset of the GPUs of it, for their siblings; and, as
            `watts`, the mean logarithm of their `watts_per_tflops`.
        sparse: GPUs of which so few kernels were measured that their interval is that of GPUs that weren't.
        rated: slug -> constant -> what it adds, of GPUs of which only the rate of large products was published.
        taught: GPUs measured well enough that the corrections for unmeasured GPUs learned from them.
    """

    base: dict[str, float]
    tensor_class: Effects = field(default_factory=dict)
    gpu: Effects = field(default_factory=dict)
    framework: Effects = field(default_factory=dict)
    stack: Effects = field(default_factory=dict)
    architecture: Effects = field(default_factory=dict)
    sparse: Sequence[str] = ()
    rated: Effects = field(default_factory=dict)
    taught: Sequence[str] = ()

    @functools.cached_property
    def well_measured(self) -> Mapping[str, Machine]:
        """GPUs, by slug, that were measured on enough kernels to tell how far off a prediction for them may be."""
        return {slug: machine_of(slug) for slug in self.gpu if slug not in self.sparse}

    def constants(
        self,
        machine: Machine,
        frameworks: Frameworks = None,
        calibrated: Mapping[str, float] | None = None,
    ) -> Constants:
        """The law's constants on a GPU; arrays, one element a row, where frameworks shift them."""
        log: dict[str, Floats | float] = dict(self.base)
        for effects in (self.tensor_class.get(machine.tensor_class, {}), self.offset(machine), calibrated or {}):
            for name, value in effects.items():
                log[name] = log[name] + value
        for framework, effects in self.framework.items():
            part = self._part_of(framework, frameworks)
            more = self.stack.get(f"{machine.tensor_class}/{framework}", {})
            for name, value in effects.items():
                log[name] = log[name] + (value + more.get(name, 0.0)) * part
        return {name: np.exp(value) for name, value in log.items()}

    def _part_of(self, framework: str, frameworks: Frameworks) -> Floats | float:
        """How much of a framework's effects each row has: of one that names none, what all have in common."""
        common = 1 / len(self.framework)
        if frameworks is None:
            return common
        unnamed = np.equal(frameworks, np.array(None))
        return np.where(frameworks == framework, 1.0, np.where(unnamed, common, 0.0))

    def offset(self, machine: Machine) -> dict[str, float]:
        """A GPU's own offset; of a GPU nobody measured, its siblings' and what its power budget or its rate says."""
        if machine.slug in self.gpu:
            return self.gpu[machine.slug]
        kin = self.architecture.get(machine.architecture, {})
        offset = {name: value for name, value in kin.items() if name != "watts"}
        if kin and not knows_power(self.base, machine):
            power = POWER_EXPONENT * (np.log(machine.watts_per_tflops) - kin["watts"])
            offset["compute"] = offset.get("compute", 0.0) + float(np.clip(power, -0.4, 0.2))
        return offset | self.rated.get(machine.slug, {})


@dataclass(frozen=True)
class Calibrated:
    """What measurements on a GPU add to a law there.

    Attributes:
        offset: constant -> what it adds to the GPU's own offset.
        trust: what it adds to the share of the learned correction that holds.
        surface: the correction near the measured shapes; None where only other laws were measured.
    """

    offset: dict[str, float]
    trust: float = 0.0
    surface: Surface | None = None


@dataclass(frozen=True)
class Weights:
    """Everything that was fitted.

    Attributes:
        laws: law -> constants.
        grown: 'architecture/law' -> learned correction of the GPUs of that architecture; 'all/law' -> that for GPUs of
            which no relative was measured.
        intervals: law -> situation -> half-width of the 90 % interval, as a logarithm.
        transfer: law -> kinship of two GPUs -> exponent of the measured residual.
        spreads: law -> how far GPUs left out were off, which a calibration starts from.
        calibrated: (law, slug) -> what measurements on that GPU say.
    """

    laws: dict[str, Fitted]
    grown: Mapping[str, Correction] = field(default_factory=dict)
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)
    transfer: dict[str, dict[str, float]] = field(default_factory=dict)
    spreads: dict[str, Spread] = field(default_factory=dict)
    calibrated: dict[tuple[str, str], Calibrated] = field(default_factory=dict)

    def calibrates(self, table: pl.DataFrame, gpu: Machine) -> Bools:
        """Of which rows of a kernel table measurements on a GPU say something: by `law` and `on_mma`."""

        def known(seen: Machine) -> pl.Expr:
            return pl.col("law").is_in([law for law, slug in self.calibrated if slug == seen.slug])

        rows = pl.when("on_mma").then(known(gpu.on_mma)).otherwise(known(gpu))
        return table.select(rows.fill_null(value=False))[:, 0].to_numpy()

    def law(self, name: str) -> Fitted:
        """The constants of a law, borrowed where nothing was measured, its priors where nothing can be."""
        for candidate in (name, STAND_INS.get(name, name)):
            if candidate in self.laws:
                return self.laws[candidate]
        return Fitted({constant: float(np.log(prior[0])) for constant, prior in LAWS[name].priors.items()})

    def spread(self, name: str) -> Spread:
        """How far a GPU may be off a law, borrowed or as usual where nothing was left out."""
        for candidate in (name, STAND_INS.get(name, name)):
            if candidate in self.spreads:
                return self.spreads[candidate]
        return usual_spread(name, LAWS[name].priors)

    def twin(self, law: str, gpu: Machine) -> Machine | None:
        """A measured GPU with the same architecture and nearly as many SMs, which runs a kernel block by block alike.

        Corrections of a GPU that has one are its twin's, so that better memory alone never makes it slower.
        """
        measured = self.laws[law].gpu if law in self.laws else {}
        if gpu.slug in measured:
            return None
        candidates = [machine_of(slug) for slug in sorted(measured)]
        twins = [m for m in candidates if m.architecture == gpu.architecture and abs(m.sms / gpu.sms - 1) < TWIN_SMS]
        return min(twins, key=lambda m: abs(m.bandwidth_gbps - gpu.bandwidth_gbps), default=None)

    def correction(self, law: str, gpu: Machine) -> Correction | None:
        """The correction of a law on a GPU: its architecture's, which siblings share, or else the general one."""
        own = self.grown.get(f"{gpu.architecture}/{law}") if self.has_sibling(law, gpu) else None
        return own or self.grown.get(f"all/{law}")

    def learned_from(self, law: str, gpu: Machine) -> bool:
        """Whether the correction of a law on a measured GPU learned from it or from others of its architecture."""
        fitted = self.law(law)
        own = gpu.slug in fitted.gpu and f"{gpu.architecture}/{law}" in self.grown
        return own or gpu.slug in fitted.taught

    def has_sibling(self, law: str, gpu: Machine) -> bool:
        """Whether a GPU of its architecture was measured that runs a law's kernels as it does.

        Of products that the board's power limits, only one with as many SMs does: large ones reach a sixth less on an
        L40S than middling ones, which they don't on boards with more power for each SM.
        """
        fitted = self.law(law)
        if all(gpu.architecture != other.architecture for other in fitted.well_measured.values()):
            return False
        alone = gpu.slug not in fitted.gpu and self.twin(law, gpu) is None
        return not (alone and knows_power(fitted.base, gpu))


def shipped_sha256() -> str:
    """What tells the fitted numbers that ship from any others."""
    return hashlib.sha256((SHIPPED / "weights.json").read_bytes()).hexdigest()


def load_weights(folder: str | Path | None = None) -> Weights:
    """Weights from a folder; those that ship by default.

    Raises:
        WeightsError: no readable weights there, or of another format.
    """
    return _load(Path(folder) if folder is not None else SHIPPED)


def save_weights(weights: Weights, folder: Path) -> None:
    """Writes `weights.json` and `corrections.npz`."""
    folder.mkdir(parents=True, exist_ok=True)
    laws = {name: {f.name: getattr(fitted, f.name) for f in fields(fitted)} for name, fitted in weights.laws.items()}
    text = {"format": FORMAT, "laws": laws, "intervals": weights.intervals, "transfer": weights.transfer}
    text |= {"spreads": {name: vars(spread) for name, spread in weights.spreads.items()}}
    (folder / "weights.json").write_text(json.dumps(_rounded(text), indent=1, sort_keys=True) + "\n")
    learned = [arrays_of(name, correction) for name, correction in weights.grown.items()]
    arrays: dict[str, Any] = {name: array for of_one in learned for name, array in of_one.items()}
    np.savez_compressed(folder / "corrections.npz", **arrays)


@functools.cache
def machine_of(slug: str) -> Machine:
    """The GPU that a slug of the weights means: as it is, or as kernels made for an A100's matrix units see it."""
    board = machine(load_gpu(slug.removesuffix(ON_MMA)))
    return board.on_mma if slug.endswith(ON_MMA) else board


@functools.lru_cache(maxsize=8)
def _load(folder: Path) -> Weights:
    try:
        text = json.loads((folder / "weights.json").read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"no readable weights.json in {folder}: {error}") from error
    if text.get("format") != FORMAT:
        raise WeightsError(f"{folder}: weights of format {text.get('format')}, this version reads {FORMAT}")
    corrections = folder / "corrections.npz"
    return Weights(
        laws={name: Fitted(**fitted) for name, fitted in text["laws"].items()},
        grown=StoredCorrections(corrections) if corrections.exists() else {},
        intervals=text["intervals"],
        transfer=text["transfer"],
        spreads={name: Spread(**spread) for name, spread in text.get("spreads", {}).items()},
    )


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {str(k): _rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(v) for v in value]
    return round(value, 5) if isinstance(value, float) else value
