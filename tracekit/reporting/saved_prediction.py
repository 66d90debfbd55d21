"""Read saved predictions, to compare them with later measurements."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated, Any

import msgspec

from predictors import resolve_gpu
from tracekit.errors import TraceError, TracekitError
from tracekit.messages import front_ends
from tracekit.prediction.batch import StepBatch
from tracekit.reporting.comparison import ComparisonSide, build_kernel_table
from tracekit.reporting.sections.kernels import KernelTime
from tracekit.scoreboard import Forecast


class SavedKernel(msgspec.Struct):
    """One kernel in the file."""

    family: str
    op: str | None
    dtype: str | None
    shape: str | None
    count: float
    predicted_us: list[float]

    def __post_init__(self) -> None:
        if self.shape is not None:
            msgspec.json.decode(self.shape, type=list[Any])


class SavedLayout(msgspec.Struct):
    """Layout of the job on one target."""

    world_size: int


class SavedExperience(msgspec.Struct):
    """What earlier outcomes changed."""

    law_offsets: dict[str, Annotated[float, msgspec.Meta(ge=-5, le=5)]] = {}


class SavedTarget(msgspec.Struct):
    """One target in the file."""

    gpu: str
    step_time_us: Annotated[float, msgspec.Meta(gt=0)]
    low_us: float
    high_us: float
    time: dict[str, float]
    cluster: str | None = None
    layout: SavedLayout | None = None
    batch: StepBatch | None = None
    forecast: Forecast | None = None
    experience: SavedExperience | None = None

    @property
    def label(self) -> str:
        """Name of the cluster, or else of the GPU."""
        return self.cluster or self.gpu


class SavedPrediction(msgspec.Struct):
    """The part of ``tracekit predict --json`` that a comparison needs."""

    schema_version: int
    targets: list[SavedTarget]
    kernels: list[SavedKernel]
    kernels_omitted: int = 0
    other_kernels: list[SavedKernel] | None = None

    def __post_init__(self) -> None:
        if any(len(kernel.predicted_us) != len(self.targets) for kernel in self.listed_kernels):
            raise ValueError("a kernel doesn't have a time on each target")

    @property
    def listed_kernels(self) -> list[SavedKernel]:
        """All kernels in the file."""
        return [*self.kernels, *(self.other_kernels or ())]


def to_saved_kernels(kernels: Sequence[KernelTime]) -> Any:
    """Convert kernels to the fields that a comparison needs, for a file that doesn't hold their full description."""
    return msgspec.to_builtins(msgspec.convert(kernels, list[SavedKernel], from_attributes=True))


def is_prediction(head: bytes) -> bool:
    """Return whether a file with this beginning was written by ``tracekit predict``."""
    return b'"schema_version"' in head


def read_prediction(content: bytes, name: str, wanted: str | None) -> ComparisonSide:
    """Read one target of a saved prediction.

    ``wanted`` is the cluster or GPU; required if the file holds several.

    Raises:
        TraceError: The file isn't what ``tracekit predict`` writes.
        TracekitError: It holds several GPUs, or not the wanted one.
    """
    try:
        predicted = msgspec.json.decode(content, type=SavedPrediction)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(front_ends.NOT_A_SAVED_PREDICTION(path=name, reason=str(error))) from error
    place = _choose_target(predicted, name, wanted)
    target = predicted.targets[place]
    rows = ((k.family, k.op, k.dtype, k.shape, k.count, k.predicted_us[place]) for k in predicted.listed_kernels)
    return ComparisonSide(
        label=f"{PurePath(name).stem}, predicted on {target.label}",
        gpu=target.gpu,
        step_time_us=target.step_time_us,
        low_us=target.low_us,
        high_us=target.high_us,
        parts=target.time,
        kernels=build_kernel_table(rows),
        recorded={},
        unlisted=predicted.kernels_omitted if predicted.other_kernels is None else 0,
        ranks=target.layout.world_size if target.layout else None,
        batch=target.batch,
        forecast=target.forecast,
        law_offsets=target.experience.law_offsets if target.experience else {},
    )


def _choose_target(predicted: SavedPrediction, name: str, wanted: str | None) -> int:
    labels = [target.label for target in predicted.targets]
    if wanted in labels:
        return labels.index(wanted)
    slug = resolve_gpu(wanted).gpu.slug if wanted else None
    places = [place for place, target in enumerate(predicted.targets) if slug in (None, target.gpu)]
    if len(places) != 1:
        if slug is None:
            raise TracekitError(front_ends.SAVED_PREDICTION_OF_SEVERAL(path=name, targets=labels))
        several, none = front_ends.SAVED_PREDICTION_OF_SEVERAL_LIKE, front_ends.SAVED_PREDICTION_WITHOUT_GPU
        raise TracekitError((several if places else none)(path=name, gpu=slug, targets=labels))
    return places[0]
