"""Predictions that were written earlier, to compare with what was measured since."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated, Any

import msgspec

from predictors import resolve_gpu
from tracekit.errors import TraceError, TracekitError
from tracekit.prediction.batch import Batch
from tracekit.reporting.comparison import Side, kernel_table
from tracekit.reporting.sections.kernels import KernelTime


class KernelRow(msgspec.Struct):
    """One kernel of the file."""

    family: str
    op: str | None
    dtype: str | None
    shape: str | None
    count: float
    predicted_us: list[float]

    def __post_init__(self) -> None:
        if self.shape is not None:
            msgspec.json.decode(self.shape, type=list[Any])


class LayoutRow(msgspec.Struct):
    """How one target's ranks share the job."""

    world_size: int


class TargetRow(msgspec.Struct):
    """One target of the file."""

    gpu: str
    step_time_us: Annotated[float, msgspec.Meta(gt=0)]
    low_us: float
    high_us: float
    time: dict[str, float]
    cluster: str | None = None
    layout: LayoutRow | None = None
    batch: Batch | None = None

    @property
    def label(self) -> str:
        """The cluster's name, or the GPU's."""
        return self.cluster or self.gpu


class Predicted(msgspec.Struct):
    """What ``tracekit predict --json`` writes, as far as a comparison needs it."""

    schema_version: int
    targets: list[TargetRow]
    kernels: list[KernelRow]
    kernels_omitted: int = 0
    other_kernels: list[KernelRow] | None = None

    def __post_init__(self) -> None:
        if any(len(kernel.predicted_us) != len(self.targets) for kernel in self.listed):
            raise ValueError("a kernel doesn't have a time on each target")

    @property
    def listed(self) -> list[KernelRow]:
        """All kernels that it tells."""
        return [*self.kernels, *(self.other_kernels or ())]


def brief(kernels: Sequence[KernelTime]) -> Any:
    """What a comparison needs of kernels that a file has no room to describe."""
    return msgspec.to_builtins(msgspec.convert(kernels, list[KernelRow], from_attributes=True))


def is_prediction(head: bytes) -> bool:
    """Whether a file that begins like this was written by ``tracekit predict``."""
    return b'"schema_version"' in head


def read(content: bytes, name: str, wanted: str | None) -> Side:
    """One target of a prediction.

    Args:
        content: The JSON.
        name: Where it was read from.
        wanted: The cluster or GPU; needed if there are several.

    Raises:
        TraceError: The file isn't what ``tracekit predict`` writes.
        TracekitError: It holds several GPUs, or not this one.
    """
    try:
        predicted = msgspec.json.decode(content, type=Predicted)
    except msgspec.MsgspecError as error:
        raise TraceError(f"{name} is not what `tracekit predict --json` writes: {error}.", "Predict anew.") from error
    place = _chosen(predicted, name, wanted)
    target = predicted.targets[place]
    rows = ((k.family, k.op, k.dtype, k.shape, k.count, k.predicted_us[place]) for k in predicted.listed)
    return Side(
        label=f"{PurePath(name).stem}, predicted on {target.label}",
        gpu=target.gpu,
        step_time_us=target.step_time_us,
        low_us=target.low_us,
        high_us=target.high_us,
        parts=target.time,
        kernels=kernel_table(rows),
        recorded={},
        unlisted=predicted.kernels_omitted if predicted.other_kernels is None else 0,
        ranks=target.layout.world_size if target.layout else None,
        batch=target.batch,
    )


def _chosen(predicted: Predicted, name: str, wanted: str | None) -> int:
    labels = [target.label for target in predicted.targets]
    if wanted in labels:
        return labels.index(wanted)
    slug = resolve_gpu(wanted).gpu.slug if wanted else None
    places = [place for place, target in enumerate(predicted.targets) if slug in (None, target.gpu)]
    if len(places) != 1:
        several = f"several of {slug}" if slug else "several GPUs"
        said = f"predicts {several}" if places else f"has no prediction for {slug}"
        raise TracekitError(f"{name} {said}.", f"Choose with --gpu: {', '.join(labels)}.")
    return places[0]
