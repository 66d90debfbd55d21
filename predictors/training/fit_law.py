"""Fit the constants of a law and the offsets of classes, GPUs and frameworks: a robust MAP fit in log space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq  # type: ignore[import-untyped, unused-ignore]

from predictors.arrays import Bools, Columns, Floats
from predictors.hardware import Hardware
from predictors.laws.gemm import models_power
from predictors.laws.law import Law
from predictors.weights_file import LawConstants, load_hardware

EFFECT_SD = {"tensor_class": 0.12, "gpu": 0.1, "framework": 0.12, "stack": 0.08}
"""Prior standard deviations of the offsets, in log space (predictor study, section 1)."""
CLASS_SIDE_SD = 0.03
"""Of a class's memory rate, and of its rate where kernels run on the vector units: matrix units have no part in it."""
VECTOR_GPU_SD = 0.15
"""Prior SD of a GPU's offsets on the vector units, where the class has almost none."""
LOW_POWER_W, LOW_POWER_SD = 75.0, 0.3
"""Boards of so little power, and of their offsets on the vector units: how far they throttle is theirs alone."""
AMD_CLASS_SD = 0.5
"""The same of AMD's class: its libraries reach another share of the peak, which mustn't bend what all GPUs share."""
AMD_FLOOR_LOG_RATIO = 0.5
"""Prior of AMD's floors in clocks over NVIDIA's, as a logarithm: its shortest kernels take 3 to 4 us, not 1.5 to 2."""
LOG_NOISE = 0.12
PUBLISHED_RATE_LOG_NOISE = 0.08
"""Of a published rate: so far are A100, L40S, H100 and B200 under load off theirs, beside what `COOL` explains."""
EFFECTIVE_ROWS = 150.0
"""How many independent measurements one framework on one GPU counts as: rows of one kernel err together."""
HUBER_THRESHOLD = 2.0
COOL_RATE_PRIOR = (0.05, 0.05)
"""Prior of the compute rate of a GPU that was idle before over that of one at work, as a logarithm."""
LAUNCH_US_PRIOR = (10.0, 0.8)
"""Prior of what an eager measurement has on top of the kernel: the CPU's launch."""
FIXED_SD = 1e-3
"""Prior standard deviation of constants that are as they were fitted before."""
DERIVATIVE_STEP = 1e-4
MAX_EVALUATIONS, MAX_WARM_START_EVALUATIONS, MIN_MISFIT_CHANGE = 25, 6, 1e-4

ParameterName = tuple[str, str, str]
LAUNCH = "launch"
COOL_RATE_PARAMETER: ParameterName = ("cool", "", "compute")


@dataclass(frozen=True)
class LawData:
    """Measurements of one law on one GPU.

    Attributes:
        hardware: Hardware of the GPU.
        columns: From ``columns.LawInputs.to_columns``.
        share: Fraction of its op's work that each kernel does.
        framework: Object array, None where unknown.
        is_eager: Whether ``latency_us`` includes the launch.
        latency_us: Measured times.
        is_published_rate: Whether the rows are published rates of large GEMMs instead of measured kernels.
    """

    hardware: Hardware
    columns: Columns
    share: Floats
    framework: npt.NDArray[np.object_]
    is_eager: Bools
    latency_us: Floats
    is_published_rate: bool = False

    @property
    def frameworks(self) -> set[str]:
        """Frameworks that rows name."""
        return {f for f in set(self.framework) if f is not None}

    @property
    def stacks(self) -> set[str]:
        """'class/framework' of each."""
        return {f"{self.hardware.tensor_class}/{f}" for f in self.frameworks}


def fit_law(
    law: Law, parts: Sequence[LawData], near: LawConstants | None = None
) -> tuple[LawConstants, dict[str, float]]:
    """Fits one law to measurements on several GPUs.

    Args:
        law: The law.
        parts: Measurements, one element per GPU, and published rates.
        near: Fit of almost the same measurements to start from.

    Returns:
        The constants, and the launch overhead in microseconds of each GPU with eager measurements.
    """
    problem = _LawFitProblem(law, parts)
    start = problem.priors[:, 0] if near is None else problem.to_vector(near)
    found = _minimise(problem, start, MAX_EVALUATIONS if near is None else MAX_WARM_START_EVALUATIONS)
    fitted = problem.to_constants(found)
    fitted = replace(fitted, architecture=_compute_architecture_offsets(parts, fitted))
    rated = {slug: fitted.gpu[slug] for slug in fitted.gpu.keys() - problem.measured}
    gpu = {slug: fitted.gpu[slug] for slug in sorted(problem.measured)}
    return replace(fitted, gpu=gpu, rated=rated), problem.get_launch_us(found)


def fit_gpu_alone(law: Law, part: LawData, near: LawConstants) -> LawConstants:
    """Fit the offsets of one GPU, the first of its class, and leave the constants of the others as they are.

    Args:
        law: The law.
        part: Measurements of the GPU.
        near: The constants that all others have.

    Returns:
        These, and the offsets of the GPU, its class and its architecture.
    """
    problem = _AddedGpuProblem(law, part, near)
    found = problem.to_constants(_minimise(problem, problem.priors[:, 0], MAX_EVALUATIONS))
    return replace(
        near,
        tensor_class={**near.tensor_class, **found.tensor_class},
        gpu={**near.gpu, **found.gpu},
        architecture={**near.architecture, **_compute_architecture_offsets([part], found)},
    )


def _minimise(problem: _LawFitProblem, start: Floats, evaluations: int) -> Floats:
    """Return the parameters with the least misfit: steps of Gauss and Newton in a region where they can be trusted.

    Rows of a GPU depend on few parameters, so the normal equations are small; priors keep them well conditioned.
    """
    vector, misfit, radius = start, problem.compute_misfit(start), float(np.linalg.norm(start))
    gradient, curvature = problem.linearise(vector)
    for _ in range(evaluations - 1):
        step = _solve_within(gradient, curvature, radius)
        expected = -(gradient + curvature @ step / 2) @ step
        less, length = misfit - problem.compute_misfit(vector + step), float(np.linalg.norm(step))
        if less < 0.25 * expected:
            radius = length / 4
        elif less > 0.75 * expected and length > 0.95 * radius:
            radius *= 2
        if less > 0:
            vector, misfit = vector + step, misfit - less
            if 0.25 * expected < less < MIN_MISFIT_CHANGE * misfit:
                break
            gradient, curvature = problem.linearise(vector)
    return vector


def _solve_within(gradient: Floats, curvature: Floats, radius: float) -> Floats:
    """Return the step to the least of a convex quadratic function, or no farther than a radius."""
    values, vectors = np.linalg.eigh(curvature)
    slope = vectors.T @ gradient
    steepest = float(np.linalg.norm(slope))

    def exceed(damping: float) -> float:
        return float(np.linalg.norm(slope / (values + damping))) - radius

    damping = brentq(exceed, 0.0, steepest / radius) if exceed(0.0) > 0 else 0.0
    return np.asarray(-vectors @ (slope / (values + damping)))


def _compute_architecture_offsets(parts: Sequence[LawData], fitted: LawConstants) -> dict[str, dict[str, float]]:
    """Mean offsets and power budget of each architecture's GPUs.

    If the law does not model power, GPUs with only a published rate are left out where others of the architecture were
    measured; and those whose matrix units are far slower than its fastest, for they say nothing of the others.
    """
    kin: dict[str, dict[str, Hardware]] = {}
    for part in sorted(parts, key=lambda part: part.is_published_rate):
        alike = kin.setdefault(part.hardware.architecture, {})
        if not (part.is_published_rate and alike) or models_power(fitted.base, part.hardware):
            alike[part.hardware.slug] = part.hardware
    return {architecture: _average_offsets(_select_like_fastest(alike), fitted) for architecture, alike in kin.items()}


def _select_like_fastest(machines: Mapping[str, Hardware]) -> list[Hardware]:
    fastest = max(machines.values(), key=lambda gpu: gpu.get_tflops("fp16") / gpu.sms / gpu.clock_mhz)
    return [gpu for gpu in machines.values() if gpu.has_matrix_units_like(fastest)]


def _average_offsets(machines: Sequence[Hardware], fitted: LawConstants) -> dict[str, float]:
    known = [fitted.gpu[m.slug] for m in machines]
    names = sorted({name for offset in known for name in offset})
    offsets = {name: float(np.mean([offset[name] for offset in known if name in offset])) for name in names}
    return offsets | {"watts": float(np.mean([np.log(m.watts_per_tflops) for m in machines]))}


class _LawFitProblem:
    """Parameters as a vector, and the misfit of measurements and priors as a function of it."""

    def __init__(self, law: Law, parts: Sequence[LawData]) -> None:
        self.law, self.parts = law, parts
        self.measured = {part.hardware.slug for part in parts if not part.is_published_rate}
        self.names = self._list_parameters()
        self.priors = np.array([self._get_prior(name) for name in self.names])
        self._models = [_PartModel(law, part, self.names) for part in parts]

    def compute_misfit(self, vector: Floats) -> float:
        """Half the sum of the squares of all residuals."""
        residuals = [model.compute_residuals(vector) for model in self._models]
        residuals.append((vector - self.priors[:, 0]) / self.priors[:, 1])
        return 0.5 * float(sum(each @ each for each in residuals))

    def linearise(self, vector: Floats) -> tuple[Floats, Floats]:
        """Gradient of the misfit, (parameters,), and its second derivatives as Gauss and Newton take them."""
        gradient = (vector - self.priors[:, 0]) / self.priors[:, 1] ** 2
        curvature = np.diag(self.priors[:, 1] ** -2)
        for model in self._models:
            residuals, jacobian = model.linearise(vector)
            gradient[model.columns] += jacobian.T @ residuals
            curvature[np.ix_(model.columns, model.columns)] += jacobian.T @ jacobian
        return gradient, curvature

    def to_constants(self, vector: Floats) -> LawConstants:
        scopes: dict[str, dict[str, dict[str, float]]] = {scope: {} for scope in EFFECT_SD}
        base: dict[str, float] = {}
        for (scope, who, constant), value in zip(self.names, vector, strict=True):
            if scope == "base":
                base[constant] = float(value)
            elif scope in scopes:
                scopes[scope].setdefault(who, {})[constant] = float(value)
        tensor_class, gpu, framework, stack = (scopes[scope] for scope in EFFECT_SD)
        return LawConstants(base, tensor_class, gpu, framework, stack)

    def to_vector(self, fitted: LawConstants) -> Floats:
        """A fit as a vector; launch overheads from their prior."""
        scopes = {"base": {"": fitted.base}} | {scope: getattr(fitted, scope) for scope in EFFECT_SD}
        scopes["gpu"] = fitted.gpu | fitted.rated
        values = [scopes.get(scope, {}).get(who, {}).get(constant) for scope, who, constant in self.names]
        return np.array([p if v is None else v for v, p in zip(values, self.priors[:, 0], strict=True)])

    def get_launch_us(self, vector: Floats) -> dict[str, float]:
        pairs = zip(self.names, vector, strict=True)
        return {who: float(np.exp(value)) for (scope, who, _), value in pairs if scope == "launch"}

    def _list_parameters(self) -> list[ParameterName]:
        names: list[ParameterName] = [("base", "", constant) for constant in self.law.priors]
        scopes = {
            "tensor_class": {p.hardware.tensor_class for p in self.parts},
            "gpu": self.measured,
            "framework": {f for p in self.parts for f in p.frameworks},
            "stack": {s for p in self.parts for s in p.stacks},
        }
        for scope, members in scopes.items():
            names += [(scope, who, constant) for who in sorted(members) for constant in self.law.effects]
        rated = {p.hardware.slug for p in self.parts if p.is_published_rate}
        names += [("gpu", who, "compute") for who in sorted(rated - self.measured)]
        names += [COOL_RATE_PARAMETER] if rated else []
        return names + [("launch", p.hardware.slug, LAUNCH) for p in self.parts if p.is_eager.any()]

    def _get_prior(self, name: ParameterName) -> tuple[float, float]:
        scope, who, constant = name
        if (scope, who) == ("tensor_class", "mfma"):
            return AMD_FLOOR_LOG_RATIO if constant == "floor" else 0.0, AMD_CLASS_SD
        if scope == "launch":
            return float(np.log(LAUNCH_US_PRIOR[0])), LAUNCH_US_PRIOR[1]
        if scope == "cool":
            return COOL_RATE_PRIOR
        if scope == "base":
            median, sd = self.law.priors[constant]
            return float(np.log(median)), sd
        on_vector_units = "power" in self.law.priors
        if scope == "tensor_class" and (constant == "memory" or on_vector_units):
            return 0.0, CLASS_SIDE_SD
        if scope == "gpu" and on_vector_units:
            throttles = who in self.measured and load_hardware(who).gpu.tdp_w <= LOW_POWER_W
            return 0.0, LOW_POWER_SD if throttles else VECTOR_GPU_SD
        return 0.0, EFFECT_SD[scope]


class _AddedGpuProblem(_LawFitProblem):
    """The offsets of one GPU and its class, with all other constants held."""

    def __init__(self, law: Law, part: LawData, near: LawConstants) -> None:
        self._near = near
        super().__init__(law, [part])

    def _list_parameters(self) -> list[ParameterName]:
        return [name for name in super()._list_parameters() if name[0] != "stack"]

    def _get_prior(self, name: ParameterName) -> tuple[float, float]:
        scope, who, constant = name
        if scope == "base":
            return self._near.base[constant], FIXED_SD
        if scope == "framework":
            return self._near.framework.get(who, {}).get(constant, 0.0), FIXED_SD
        return 0.0, AMD_CLASS_SD if scope == "tensor_class" else EFFECT_SD[scope]


class _PartModel:
    """Residuals of one GPU's measurements, whose law's constants are sums of parameters, as logarithms.

    Attributes:
        columns: Places of the parameters that change them.
    """

    def __init__(self, law: Law, part: LawData, names: Sequence[ParameterName]) -> None:
        self._law, self._part, self._weights = law, part, _compute_row_weights(part)
        known = LawConstants({}, framework={who: {} for scope, who, _ in names if scope == "framework"})
        weight_of = known.compute_framework_weights(part.framework)
        found = [(at, name, weight) for at, name in enumerate(names) if (weight := _weigh(name, part, weight_of)).any()]
        self.columns = np.array([at for at, _, _ in found])
        self._constants = [constant for _, (_, _, constant), _ in found]
        self._row_weights = np.stack([np.broadcast_to(weight, part.latency_us.shape) for _, _, weight in found], axis=1)

    def compute_residuals(self, vector: Floats) -> Floats:
        """What the law misses, (rows,)."""
        constants = self._compute_constants(vector)
        return self._miss(self._compute_time_us(constants), constants)

    def linearise(self, vector: Floats) -> tuple[Floats, Floats]:
        """What the law misses, and its derivatives by the parameters in `columns`, as forward differences."""
        constants = self._compute_constants(vector)
        time_us = self._compute_time_us(constants)
        residuals = self._miss(time_us, constants)
        slope = {}
        for name, value in constants.items():
            moved = {**constants, name: value * np.exp(DERIVATIVE_STEP)}
            moved_us = time_us if name == LAUNCH else self._compute_time_us(moved)
            slope[name] = (self._miss(moved_us, moved) - residuals) / DERIVATIVE_STEP
        return residuals, np.stack([slope[name] for name in self._constants], axis=1) * self._row_weights

    def _compute_constants(self, vector: Floats) -> dict[str, Floats]:
        log = {name: np.zeros(self._part.latency_us.size) for name in self._constants}
        for name, value, weight in zip(self._constants, vector[self.columns], self._row_weights.T, strict=True):
            log[name] += value * weight
        return {name: np.exp(value) for name, value in log.items()}

    def _compute_time_us(self, constants: Mapping[str, Floats]) -> Floats:
        part = self._part
        return self._law.evaluate(part.columns, part.share, part.hardware, constants).time_us

    def _miss(self, time_us: Floats, constants: Mapping[str, Floats]) -> Floats:
        part = self._part
        launch_us = constants[LAUNCH] * part.is_eager if LAUNCH in constants else 0.0
        z = (np.log(time_us + launch_us) - np.log(part.latency_us)) / LOG_NOISE
        robust = np.sign(z) * HUBER_THRESHOLD * np.sqrt(2 * (np.sqrt(1 + (z / HUBER_THRESHOLD) ** 2) - 1))
        return np.asarray(robust * self._weights)


def _weigh(name: ParameterName, part: LawData, weight_of: Mapping[str, Floats | float]) -> Floats:
    """How much of a parameter each row of a part has: (rows,), or () where all have the same."""
    scope, who, _ = name
    if scope in ("gpu", "launch"):
        return np.array(float(who == part.hardware.slug))
    if scope == "tensor_class":
        return np.array(float(who == part.hardware.tensor_class))
    if scope == "cool":
        return np.array(float(part.is_published_rate))
    if scope == "stack":
        tensor_class, framework = who.split("/", 1)
        return np.asarray(weight_of[framework] * (tensor_class == part.hardware.tensor_class), dtype=np.float64)
    return np.asarray(1.0 if scope == "base" else weight_of[who], dtype=np.float64)


def _compute_row_weights(part: LawData) -> Floats:
    """Square roots of weights that make every framework on every GPU count the same, but no row more than once.

    Published rates of a GPU count as one measurement, because all of them are rates of one GEMM.
    """
    if part.is_published_rate:
        return np.full(part.latency_us.size, LOG_NOISE / PUBLISHED_RATE_LOG_NOISE * part.latency_us.size**-0.5)
    labels, counts = np.unique(part.framework.astype(str), return_counts=True)
    count = dict(zip(labels, counts, strict=True))
    each = np.array([count[label] for label in part.framework.astype(str)], dtype=float)
    return np.asarray(np.sqrt(np.minimum(EFFECTIVE_ROWS / each / len(labels) ** 0.5, 1.0)))
