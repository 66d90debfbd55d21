"""What outcomes tell of a GPU's laws: by how much kernels of a family take longer than predicted, or less long.

Each job's outcome has the time of each family of kernels, predicted and measured. The logarithms of their ratios are
averaged, shrunken towards zero as if ``PRIOR_JOBS`` more jobs had met the prediction::

    gemm on an H100     x1.10  x1.14  x1.12      log: 0.095 0.131 0.113     offset 0.340 / (3 + 2) = 0.068: x1.07

It is used only where leaving one job out says that it helps: with the offset of the others each job must be no worse
than without, and all of them better on average. So a family whose errors have no common sign keeps its law.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from statistics import mean

from tracekit.scoreboard.outcome import Outcome

PRIOR_JOBS = 2
"""Jobs without an error that each offset is shrunken by. A judgement: few users keep more than ten outcomes."""
MIN_JOBS = 3
"""Fewest jobs: of two, each would be judged by the other alone."""
SAME_JOB_DIGITS = 2
"""Significant digits of the predicted step by which outcomes of one source, kind and number of GPUs are one job."""
CAPTURED = "captured"


@dataclass(frozen=True, slots=True)
class LawOffset:
    """The offset of a family of kernels on a GPU.

    Attributes:
        family: The family.
        offset: Logarithm of the factor on predicted times.
        jobs: Jobs that tell it.
        error_before: Mean error of a job, as a logarithm, without it.
        error_after: The same with the offset of the other jobs.
        helps: Whether no job is worse with the offset of the others, and all are better on average.
    """

    family: str
    offset: float
    jobs: int
    error_before: float
    error_after: float
    helps: bool


def find_law_offsets(
    outcomes: Iterable[Outcome], target: str, source: str | None, kind: str, weights: str
) -> tuple[LawOffset, ...]:
    """Find the offsets of a GPU's laws, by family, whether or not they help.

    Args:
        outcomes: The outcomes.
        target: The GPU predicted for.
        source: The trace's GPU; None where it isn't known.
        kind: Kind of job; of captured programs all laws are those of shapes.
        weights: Beginning of the SHA-256 of the weights in use.
    """
    alike = (one for one in outcomes if one.target == target and one.weights == weights)
    basis = _name_basis(source, kind)
    errors: dict[str, dict[object, list[float]]] = {}
    for one in alike:
        if _name_basis(one.source, one.kind) != basis:
            continue
        job = one.source, one.kind, one.gpus, f"{one.likely_us:.{SAME_JOB_DIGITS}g}"
        for law in one.laws:
            errors.setdefault(law.family, {}).setdefault(job, []).append(log(law.measured_us / law.predicted_us))
    found = (_fit_offset(family, [mean(each) for each in jobs.values()]) for family, jobs in sorted(errors.items()))
    return tuple(one for one in found if one.jobs >= MIN_JOBS)


@dataclass(frozen=True, slots=True)
class LawSummary:
    """An offset that outcomes tell, and for what.

    Attributes:
        target: The GPU predicted for.
        source: The traces' GPU, or ``captured`` of programs that never ran; None where it isn't known.
        law: The offset.
    """

    target: str
    source: str | None
    law: LawOffset


def summarize_laws(outcomes: Iterable[Outcome], weights: str) -> tuple[LawSummary, ...]:
    """Find all offsets that outcomes of the weights in use tell, whether or not they help."""
    kept = tuple(outcomes)
    bases = dict.fromkeys((one.target, _name_basis(one.source, one.kind)) for one in kept)
    return tuple(
        LawSummary(target, basis, law)
        for target, basis in bases
        for law in find_law_offsets(kept, target, basis, basis if basis == CAPTURED else "", weights)
    )


def choose_factors(offsets: Iterable[LawOffset]) -> Mapping[str, float]:
    """Return the logarithms of the factors on predicted times, of the families that they help."""
    return {one.family: one.offset for one in offsets if one.helps}


def _name_basis(source: str | None, kind: str) -> str | None:
    return CAPTURED if kind.startswith(CAPTURED) else source


def _fit_offset(family: str, errors: list[float]) -> LawOffset:
    total, count = sum(errors), len(errors)
    left = [abs(one - (total - one) / (count - 1 + PRIOR_JOBS)) for one in errors]
    before, after = mean(map(abs, errors)), mean(left)
    helps = after < before and all(new <= abs(old) for new, old in zip(left, errors, strict=True))
    return LawOffset(family, total / (count + PRIOR_JOBS), count, before, after, helps)
