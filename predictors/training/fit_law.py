"""Fit the constants of a law and the offsets of classes, GPUs and frameworks: a robust MAP fit in log space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares  # type: ignore[import-untyped, unused-ignore]

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
DERIVATIVE_STEP = 1e-4

ParameterName = tuple[str, str, str]
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
    steps = 25 if near is None else 6
    solution = least_squares(
        problem.compute_residuals, start, jac=problem.compute_jacobian, max_nfev=steps, x_scale=0.1, ftol=1e-4
    )
    fitted = problem.to_constants(solution.x)
    fitted = replace(fitted, architecture=_compute_architecture_offsets(parts, fitted))
    rated = {slug: fitted.gpu[slug] for slug in fitted.gpu.keys() - problem.measured}
    gpu = {slug: fitted.gpu[slug] for slug in sorted(problem.measured)}
    return replace(fitted, gpu=gpu, rated=rated), problem.get_launch_us(solution.x)


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
    """Parameters as a vector, and the residuals of measurements and priors as a function of it."""

    def __init__(self, law: Law, parts: Sequence[LawData]) -> None:
        self.law, self.parts = law, parts
        self.measured = {part.hardware.slug for part in parts if not part.is_published_rate}
        self.names = self._list_parameters()
        self.priors = np.array([self._get_prior(name) for name in self.names])
        self.weights = [_compute_row_weights(part) for part in parts]

    def compute_residuals(self, vector: Floats) -> Floats:
        rows = [self._compute_part_residuals(i, vector) for i in range(len(self.parts))]
        return np.concatenate([*rows, (vector - self.priors[:, 0]) / self.priors[:, 1]])

    def compute_jacobian(self, vector: Floats) -> Floats:
        """Forward differences; a parameter of one GPU or class only moves that part's rows."""
        base = [self._compute_part_residuals(i, vector) for i in range(len(self.parts))]
        starts = np.cumsum([0, *(len(b) for b in base)])
        jacobian = np.zeros((starts[-1] + len(vector), len(vector)))
        for j, name in enumerate(self.names):
            moved = vector.copy()
            moved[j] += DERIVATIVE_STEP
            for i, part in enumerate(self.parts):
                if _affects(name, part):
                    jacobian[starts[i] : starts[i + 1], j] = (
                        self._compute_part_residuals(i, moved) - base[i]
                    ) / DERIVATIVE_STEP
            jacobian[starts[-1] + j, j] = 1 / self.priors[j, 1]
        return jacobian

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
        return names + [("launch", p.hardware.slug, "launch") for p in self.parts if p.is_eager.any()]

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

    def _compute_part_residuals(self, i: int, vector: Floats) -> Floats:
        part = self.parts[i]
        constants = dict(self.to_constants(vector).compute_constants(part.hardware, part.framework))
        if part.is_published_rate:
            constants["compute"] = constants["compute"] * np.exp(vector[self.names.index(COOL_RATE_PARAMETER)])
        launch = self.get_launch_us(vector).get(part.hardware.slug, 0.0) * part.is_eager
        time = self.law.evaluate(part.columns, part.share, part.hardware, constants).time_us + launch
        z = (np.log(time) - np.log(part.latency_us)) / LOG_NOISE
        robust = np.sign(z) * HUBER_THRESHOLD * np.sqrt(2 * (np.sqrt(1 + (z / HUBER_THRESHOLD) ** 2) - 1))
        return np.asarray(robust * self.weights[i])


def _affects(name: ParameterName, part: LawData) -> bool:
    scope, who, _ = name
    if scope in ("gpu", "launch"):
        return who == part.hardware.slug
    if scope == "tensor_class":
        return who == part.hardware.tensor_class
    if scope == "cool":
        return part.is_published_rate
    return scope == "base" or who in (part.stacks if scope == "stack" else part.frameworks)


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
