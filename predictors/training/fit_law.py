"""The constants of a law and the offsets of classes, GPUs and frameworks: a robust MAP fit in log space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares  # type: ignore[import-untyped, unused-ignore]

from predictors.arrays import Bools, Floats
from predictors.fitted import Fitted, machine_of
from predictors.law import Law
from predictors.laws.products import knows_power
from predictors.machine import Machine
from predictors.terms import Columns

EFFECT_SD = {"tensor_class": 0.12, "gpu": 0.1, "framework": 0.12, "stack": 0.08}
"""Prior standard deviations of the offsets, in log space (predictor study, section 1)."""
ASIDE_SD = 0.03
"""Of a class's memory rate, and of its rate where kernels run on the vector units: matrix units have no part in it."""
VECTOR_GPU_SD = 0.15
"""Of a GPU's offsets on the vector units: there it has to itself what a class and a GPU share elsewhere."""
LOW_POWER_W, LOW_POWER_SD = 75.0, 0.3
"""Boards of so little power, and of their offsets on the vector units: how far they throttle is theirs alone."""
OTHER_VENDOR_SD = 0.5
"""The same of AMD's class: its libraries reach another share of the peak, which mustn't bend what all GPUs share."""
OTHER_VENDOR_FLOOR = 0.5
"""Prior of AMD's floors in clocks over NVIDIA's, as a logarithm: its shortest kernels take 3 to 4 us, not 1.5 to 2."""
NOISE = 0.12
RATE_NOISE = 0.08
"""Of a published rate: so far are A100, L40S, H100 and B200 under load off theirs, beside what `COOL` explains."""
EFFECTIVE_ROWS = 150.0
"""How many independent measurements one framework on one GPU counts as: rows of one kernel err together."""
HUBER = 2.0
COOL = (0.05, 0.05)
"""Prior of the compute rate of a GPU that was idle before over that of one at work, as a logarithm."""
LAUNCH_US = (10.0, 0.8)
"""Prior of what an eager measurement has on top of the kernel: the CPU's launch."""
STEP = 1e-4

Name = tuple[str, str, str]
COOL_RATE: Name = ("cool", "", "compute")


@dataclass(frozen=True)
class Part:
    """Measurements of one law on one GPU.

    Attributes:
        machine: the GPU.
        columns: from `law_columns`.
        share: of its op's work that each kernel does.
        framework: object array, None where unknown.
        eager: true where `latency_us` has the launch in it.
        latency_us: measured.
        rated: the rate of large products that somebody published, instead of measured kernels.
    """

    machine: Machine
    columns: Columns
    share: Floats
    framework: npt.NDArray[np.object_]
    eager: Bools
    latency_us: Floats
    rated: bool = False

    @property
    def frameworks(self) -> set[str]:
        """The frameworks that are named."""
        return {f for f in set(self.framework) if f is not None}

    @property
    def stacks(self) -> set[str]:
        """'class/framework' of each."""
        return {f"{self.machine.tensor_class}/{f}" for f in self.frameworks}


def fit_law(law: Law, parts: Sequence[Part], near: Fitted | None = None) -> tuple[Fitted, dict[str, float]]:
    """Fits one law to measurements on several GPUs.

    Args:
        law: the law.
        parts: measurements, one element per GPU, and published rates.
        near: a fit to start from, of almost the same measurements.

    Returns:
        The constants, and the launch overhead in microseconds of each GPU measured eagerly.
    """
    problem = _Problem(law, parts)
    start = problem.priors[:, 0] if near is None else problem.vector(near)
    steps = 25 if near is None else 6
    solution = least_squares(problem.residuals, start, jac=problem.jacobian, max_nfev=steps, x_scale=0.1, ftol=1e-4)
    fitted = problem.fitted(solution.x)
    fitted = replace(fitted, architecture=_architectures(parts, fitted))
    rated = {slug: fitted.gpu[slug] for slug in fitted.gpu.keys() - problem.measured}
    gpu = {slug: fitted.gpu[slug] for slug in sorted(problem.measured)}
    return replace(fitted, gpu=gpu, rated=rated), problem.launches(solution.x)


def _architectures(parts: Sequence[Part], fitted: Fitted) -> dict[str, dict[str, float]]:
    """Mean offsets and power budget of each architecture's GPUs.

    Where the law doesn't know what less power does, GPUs of which only a rate is known say little of measured ones.
    """
    kin: dict[str, dict[str, Machine]] = {}
    for part in sorted(parts, key=lambda part: part.rated):
        alike = kin.setdefault(part.machine.architecture, {})
        if not (part.rated and alike) or knows_power(fitted.base, part.machine):
            alike[part.machine.slug] = part.machine
    return {architecture: _mean(list(alike.values()), fitted) for architecture, alike in kin.items()}


def _mean(machines: Sequence[Machine], fitted: Fitted) -> dict[str, float]:
    known = [fitted.gpu[m.slug] for m in machines]
    names = sorted({name for offset in known for name in offset})
    offsets = {name: float(np.mean([offset[name] for offset in known if name in offset])) for name in names}
    return offsets | {"watts": float(np.mean([np.log(m.watts_per_tflops) for m in machines]))}


class _Problem:
    """Parameters as a vector, and the residuals of measurements and priors as a function of it."""

    def __init__(self, law: Law, parts: Sequence[Part]) -> None:
        self.law, self.parts = law, parts
        self.measured = {part.machine.slug for part in parts if not part.rated}
        self.names = self._parameters()
        self.priors = np.array([self._prior(name) for name in self.names])
        self.weights = [_row_weights(part) for part in parts]

    def residuals(self, vector: Floats) -> Floats:
        rows = [self._part(i, vector) for i in range(len(self.parts))]
        return np.concatenate([*rows, (vector - self.priors[:, 0]) / self.priors[:, 1]])

    def jacobian(self, vector: Floats) -> Floats:
        """Forward differences; a parameter of one GPU or class only moves that part's rows."""
        base = [self._part(i, vector) for i in range(len(self.parts))]
        starts = np.cumsum([0, *(len(b) for b in base)])
        jacobian = np.zeros((starts[-1] + len(vector), len(vector)))
        for j, name in enumerate(self.names):
            moved = vector.copy()
            moved[j] += STEP
            for i, part in enumerate(self.parts):
                if _concerns(name, part):
                    jacobian[starts[i] : starts[i + 1], j] = (self._part(i, moved) - base[i]) / STEP
            jacobian[starts[-1] + j, j] = 1 / self.priors[j, 1]
        return jacobian

    def fitted(self, vector: Floats) -> Fitted:
        scopes: dict[str, dict[str, dict[str, float]]] = {scope: {} for scope in EFFECT_SD}
        base: dict[str, float] = {}
        for (scope, who, constant), value in zip(self.names, vector, strict=True):
            if scope == "base":
                base[constant] = float(value)
            elif scope in scopes:
                scopes[scope].setdefault(who, {})[constant] = float(value)
        tensor_class, gpu, framework, stack = (scopes[scope] for scope in EFFECT_SD)
        return Fitted(base, tensor_class, gpu, framework, stack)

    def vector(self, fitted: Fitted) -> Floats:
        """A fit as a vector; launch overheads from their prior."""
        scopes = {"base": {"": fitted.base}} | {scope: getattr(fitted, scope) for scope in EFFECT_SD}
        scopes["gpu"] = fitted.gpu | fitted.rated
        values = [scopes.get(scope, {}).get(who, {}).get(constant) for scope, who, constant in self.names]
        return np.array([p if v is None else v for v, p in zip(values, self.priors[:, 0], strict=True)])

    def launches(self, vector: Floats) -> dict[str, float]:
        pairs = zip(self.names, vector, strict=True)
        return {who: float(np.exp(value)) for (scope, who, _), value in pairs if scope == "launch"}

    def _parameters(self) -> list[Name]:
        names: list[Name] = [("base", "", constant) for constant in self.law.priors]
        scopes = {
            "tensor_class": {p.machine.tensor_class for p in self.parts},
            "gpu": self.measured,
            "framework": {f for p in self.parts for f in p.frameworks},
            "stack": {s for p in self.parts for s in p.stacks},
        }
        for scope, members in scopes.items():
            names += [(scope, who, constant) for who in sorted(members) for constant in self.law.effects]
        rated = {p.machine.slug for p in self.parts if p.rated}
        names += [("gpu", who, "compute") for who in sorted(rated - self.measured)]
        names += [COOL_RATE] if rated else []
        return names + [("launch", p.machine.slug, "launch") for p in self.parts if p.eager.any()]

    def _prior(self, name: Name) -> tuple[float, float]:
        scope, who, constant = name
        if (scope, who) == ("tensor_class", "mfma"):
            return OTHER_VENDOR_FLOOR if constant == "floor" else 0.0, OTHER_VENDOR_SD
        if scope == "launch":
            return float(np.log(LAUNCH_US[0])), LAUNCH_US[1]
        if scope == "cool":
            return COOL
        if scope == "base":
            median, sd = self.law.priors[constant]
            return float(np.log(median)), sd
        on_vector_units = "power" in self.law.priors
        if scope == "tensor_class" and (constant == "memory" or on_vector_units):
            return 0.0, ASIDE_SD
        if scope == "gpu" and on_vector_units:
            throttles = who in self.measured and machine_of(who).gpu.tdp_w <= LOW_POWER_W
            return 0.0, LOW_POWER_SD if throttles else VECTOR_GPU_SD
        return 0.0, EFFECT_SD[scope]

    def _part(self, i: int, vector: Floats) -> Floats:
        part = self.parts[i]
        constants = dict(self.fitted(vector).constants(part.machine, part.framework))
        if part.rated:
            constants["compute"] = constants["compute"] * np.exp(vector[self.names.index(COOL_RATE)])
        launch = self.launches(vector).get(part.machine.slug, 0.0) * part.eager
        time = self.law.at(part.columns, part.share, part.machine, constants).time_us + launch
        z = (np.log(time) - np.log(part.latency_us)) / NOISE
        robust = np.sign(z) * HUBER * np.sqrt(2 * (np.sqrt(1 + (z / HUBER) ** 2) - 1))
        return np.asarray(robust * self.weights[i])


def _concerns(name: Name, part: Part) -> bool:
    scope, who, _ = name
    if scope in ("gpu", "launch"):
        return who == part.machine.slug
    if scope == "tensor_class":
        return who == part.machine.tensor_class
    if scope == "cool":
        return part.rated
    return scope == "base" or who in (part.stacks if scope == "stack" else part.frameworks)


def _row_weights(part: Part) -> Floats:
    """Square roots of weights that make every framework on every GPU count the same, but no row more than once.

    Published rates of a GPU count as one measurement, as each is that of one product.
    """
    if part.rated:
        return np.full(part.latency_us.size, NOISE / RATE_NOISE * part.latency_us.size**-0.5)
    labels, counts = np.unique(part.framework.astype(str), return_counts=True)
    count = dict(zip(labels, counts, strict=True))
    each = np.array([count[label] for label in part.framework.astype(str)], dtype=float)
    return np.asarray(np.sqrt(np.minimum(EFFECTIVE_ROWS / each / len(labels) ** 0.5, 1.0)))
