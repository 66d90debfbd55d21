"""A prediction and what was measured later, without anything private."""

from dataclasses import dataclass
from math import inf, isfinite, log
from typing import Annotated, NamedTuple

import msgspec

Word = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9 ._-]{0,60}$")]
"""The name of a GPU, a kind of job or a version: no path and no free text."""
GpuCount = Annotated[int, msgspec.Meta(ge=1)]
MIN_HALF_WIDTH = 0.01
"""Least half-width, as a logarithm, that an error is measured in: intervals that end at the likely time have none."""
CUSTOM_GPU = "custom"
"""Stands for a GPU that a user's own file describes, whose name may be private."""


class PredictionGroup(NamedTuple):
    """Predictions whose errors are taken as alike.

    Attributes:
        target: The GPU predicted for.
        kind: Kind of job.
        is_on_several: Whether several GPUs work together.
        is_same_gpu: Whether it was traced on that GPU.
    """

    target: str
    kind: str
    is_on_several: bool
    is_same_gpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a prediction says of a step, before the scoreboard changes its interval.

    Attributes:
        target: The GPU predicted for.
        gpus: How many of them work together.
        source: The GPU of the trace; null if it isn't known.
        kind: Kind of job: training, inference, or a serving engine's prefill, decode or mixed batches.
        low_us: Lower end of the 90 % interval.
        likely_us: Likely step time.
        high_us: Upper end of the interval.
        version: Version of tracekit.
        weights: SHA-256 of the fitted weights, its beginning.
    """

    target: Word
    gpus: GpuCount
    source: Word | None
    kind: Word
    low_us: float
    likely_us: float
    high_us: float
    version: Word
    weights: Word

    def __post_init__(self) -> None:
        if not 0 < self.low_us <= self.likely_us <= self.high_us < inf:
            raise ValueError("not an interval around a positive time")

    @property
    def group(self) -> PredictionGroup:
        """The predictions that it is taken as alike with."""
        return PredictionGroup(self.target, self.kind, self.gpus > 1, self.source == self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class LawTime:
    """The kernels of a family that prediction and measurement both have.

    Attributes:
        family: The family.
        predicted_us: Their predicted time in a step, without offsets that earlier outcomes gave.
        measured_us: Their measured time in it.
    """

    family: Word
    predicted_us: Annotated[float, msgspec.Meta(gt=0, le=1e15)]
    measured_us: Annotated[float, msgspec.Meta(gt=0, le=1e15)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Forecast):
    """A prediction, and what was measured later.

    Attributes:
        measured_us: The measured step.
        date: When the outcome was kept, as ``2026-11-28``.
        laws: The same by family of kernels; empty of outcomes that earlier versions kept.
    """

    measured_us: float
    date: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    laws: tuple[LawTime, ...] = ()

    def __post_init__(self) -> None:
        Forecast.__post_init__(self)
        if not (self.measured_us > 0 and isfinite(self.measured_us)):
            raise ValueError("no positive measured time")

    @property
    def error_pct(self) -> float:
        """Error of the likely time, percent of the measured one."""
        return 100 * (self.likely_us / self.measured_us - 1)

    @property
    def is_inside(self) -> bool:
        """Whether the measured step lies in the interval."""
        return self.low_us <= self.measured_us <= self.high_us

    @property
    def score(self) -> float:
        """The error over the interval's half-width on its side, as logarithms: up to 1 inside."""
        off = log(self.measured_us / self.likely_us)
        width = log(self.high_us / self.likely_us) if off > 0 else log(self.likely_us / self.low_us)
        return abs(off) / max(width, MIN_HALF_WIDTH)
