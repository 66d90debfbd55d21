"""Calibrations: kernels measured on a GPU, stored on this machine as one JSON file per GPU, and used in predictions."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import polars as pl

from predictors import Gpu, KernelTableError, PredictorError, identify_gpu, list_gpus, load_gpu, resolve_gpu
from predictors.calibrate import select_distinct_kernels, select_improving_kernels
from predictors.columns import prepare_kernels
from predictors.given_files import describe_failure, read_regular_file
from predictors.kernel_identity import BENCHMARK_LOOP
from predictors.kernels import KERNEL_COLUMNS
from tracekit import output_files
from tracekit.bounds import MAX_CALIBRATION_BYTES
from tracekit.errors import CalibrationError, OutputError
from tracekit.messages import predictions as messages
from tracekit.messages.requests import DIRECTORY_NOT_MADE
from tracekit.run import MeasuredRun
from tracekit.workload.names.library import infer_framework

FORMAT_VERSION = 1
MAX_RELATIVE_SPREAD = 0.2
"""Largest spread of a usable measurement: half the interquartile range over the median."""
MAX_NUMBER = 2.0**53
"""Largest valid number: no kernel has larger ones."""
MIN_TRUNCATED_US = 10
"""Shortest usable time among times truncated to whole microseconds: its error is up to a tenth."""

JsonObject = dict[str, Any]
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measurements on one GPU.

    Attributes:
        gpu: Canonical name of the GPU.
        origin: Origin of the measurements: ``"bench"`` or ``"trace"``.
        date: Date of import, ``YYYY-MM-DD``.
        software: Software versions, as far as known.
        kernels: Kernel table of ``predictors`` with ``measured_us``.
    """

    gpu: str
    origin: str
    date: str
    software: str
    kernels: pl.DataFrame

    @property
    def families(self) -> tuple[str, ...]:
        """The measured families."""
        return tuple(sorted(self.kernels["family"].unique()))

    @property
    def label(self) -> str:
        """One-line description."""
        software = f", {self.software}" if self.software else ""
        return f"{self.kernels.height} kernels measured on {self.gpu} ({self.origin}, kept since {self.date}{software})"


def from_bench(path: Path, gpu: str | None = None) -> tuple[Calibration, Gpu]:
    """Read the result of the script of ``tracekit calibrate --bench``.

    Args:
        path: Its result.
        gpu: The GPU, if the result names it wrongly.

    Raises:
        CalibrationError: It is unreadable, or holds no usable measurement.
        PredictorError: ``gpu`` is unknown.
    """
    try:
        found = msgspec.json.decode(_read_bytes(path), type=_BenchResult)
    except _UNREADABLE as error:
        raise CalibrationError(messages.BENCH_RESULT_INVALID(path=str(path), reason=str(error))) from error
    target = resolve_gpu(gpu).gpu if gpu else _resolve_device(found.gpu)
    named = [("torch", found.software.get("torch")), ("driver", found.clocks.get("driver_version"))]
    text = ", ".join(f"{name} {version}" for name, version in named if version)
    steady = _build_table([row for row in found.kernels if row.spread <= MAX_RELATIVE_SPREAD])
    steady = steady.with_columns(framework=pl.coalesce("framework", pl.lit(BENCHMARK_LOOP)))
    return _build_calibration(target, "bench", text, steady, str(path)), target


def from_run(run: MeasuredRun) -> tuple[Calibration, Gpu]:
    """Take the kernels that a trace measured on its own GPU.

    Of times in whole microseconds only those with an error of at most a tenth are used.

    Raises:
        CalibrationError: The trace's GPU is unknown, or none of its kernels has a shape.
    """
    if run.gpu is None:
        raise CalibrationError(messages.CALIBRATION_GPU_UNKNOWN())
    rows = run.kernels.with_columns(measured_us=pl.col("dur_ns") / 1e3, framework=infer_framework())
    if rows.select((pl.col("measured_us") % 1 == 0).all()).item():
        rows = rows.filter(pl.col("measured_us") >= MIN_TRUNCATED_US)
    return _build_calibration(run.gpu, "trace", "", rows, str(run.trace.source)), run.gpu


def _build_calibration(gpu: Gpu, origin: str, software: str, rows: pl.DataFrame, where: str) -> Calibration:
    try:
        kernels = select_distinct_kernels(rows, gpu)
    except KernelTableError as error:
        raise CalibrationError(messages.CALIBRATION_WITHOUT_KERNELS(path=where, reason=str(error))) from error
    return Calibration(gpu.slug, origin, datetime.now(UTC).date().isoformat(), software, kernels)


def select_helpful_families(calibration: Calibration, errors: pl.DataFrame, gpu: Gpu) -> Calibration:
    """Remove the families of kernels that are predicted worse with the calibration.

    Args:
        calibration: All measurements.
        errors: Their errors, from ``predictors.calibrate.check``.
        gpu: The measured GPU.

    Raises:
        CalibrationError: Nothing is left.
    """
    kernels = select_improving_kernels(calibration.kernels, errors, gpu)
    if kernels.is_empty():
        raise CalibrationError(messages.CALIBRATION_UNHELPFUL())
    return replace(calibration, kernels=kernels)


def get_directory() -> Path:
    """Return the directory of the stored calibrations."""
    import platformdirs

    return Path(platformdirs.user_data_dir("tracekit", appauthor=False)) / "calibrations"


def load_all() -> tuple[Calibration, ...]:
    """Load all stored calibrations, by GPU.

    Raises:
        CalibrationError: One is unreadable.
    """
    return tuple(_load_file(path) for path in sorted(get_directory().glob("*.json")))


def save(calibration: Calibration) -> Path:
    """Store a calibration, replacing an older one of the same GPU.

    Raises:
        OutputError: It cannot be written.
    """
    path = get_directory() / f"{calibration.gpu}.json"
    facts = {name: getattr(calibration, name) for name in ("gpu", "origin", "date", "software")}
    text = json.dumps({"format": FORMAT_VERSION, **facts, "kernels": _build_rows(calibration.kernels)}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise OutputError(DIRECTORY_NOT_MADE(path=str(path.parent), reason=error.strerror)) from error
    with output_files.write_atomically(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
    return path


def remove(gpu: str) -> str:
    """Remove the calibration of a GPU.

    Returns:
        The GPU's canonical name.

    Raises:
        CalibrationError: There is none, or it cannot be removed.
    """
    kept = {path.stem for path in get_directory().glob("*.json")}
    slug = gpu if gpu in kept else resolve_gpu(gpu).gpu.slug
    if slug not in kept:
        raise CalibrationError(messages.CALIBRATION_NOT_FOUND(gpu=slug))
    path = get_directory() / f"{slug}.json"
    try:
        path.unlink()
    except OSError as error:
        raise CalibrationError(messages.CALIBRATION_NOT_REMOVED(path=str(path), reason=error.strerror)) from error
    return slug


def build_tables(calibrations: Iterable[Calibration], target: Gpu) -> Mapping[Gpu, pl.DataFrame]:
    """Return the kernel tables for ``predictors.predict``, by GPU: of the target and of all GPUs known by name."""
    return {
        target if one.gpu == target.slug else load_gpu(one.gpu): one.kernels
        for one in calibrations
        if one.gpu == target.slug or one.gpu in list_gpus()
    }


_Number = Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_JSON_TYPES: dict[pl.DataType, Any] = {pl.Float64(): _Number | None, pl.Boolean(): bool | None, pl.String(): str | None}
_COLUMNS = [(name, _JSON_TYPES[dtype], None) for name, dtype in KERNEL_COLUMNS.items()]
_Row: Any = msgspec.defstruct("_Row", _COLUMNS)
_MeasuredRow: Any = msgspec.defstruct("_MeasuredRow", [("spread", _Number), *_COLUMNS])


class _BenchDevice(msgspec.Struct):
    name: str
    sms: int
    memory_bytes: int
    compute_capability: str | None


class _BenchResult(msgspec.Struct):
    format: Literal[1]
    gpu: _BenchDevice
    kernels: list[_MeasuredRow]
    software: dict[str, str | None] = {}
    clocks: dict[str, str] = {}


class _StoredCalibration(msgspec.Struct):
    format: Literal[1]
    gpu: str
    origin: str
    date: str
    software: str
    kernels: list[_Row]


def _resolve_device(device: _BenchDevice) -> Gpu:
    """Identify the GPU of a result.

    Raises:
        CalibrationError: It is not a known GPU.
    """
    try:
        return identify_gpu(*msgspec.structs.astuple(device)).gpu
    except PredictorError as error:
        raise CalibrationError(messages.CALIBRATION_DEVICE_UNKNOWN(reason=error.message)) from error


def _read_bytes(path: Path) -> bytes:
    try:
        data = read_regular_file(path, MAX_CALIBRATION_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = describe_failure(error)
        raise CalibrationError(messages.BENCH_RESULT_UNREADABLE(path=str(path), reason=reason)) from error
    if len(data) > MAX_CALIBRATION_BYTES:
        raise CalibrationError(messages.BENCH_RESULT_TOO_LARGE(path=str(path), limit_bytes=MAX_CALIBRATION_BYTES))
    return data


def _load_file(path: Path) -> Calibration:
    """Load a calibration that is kept.

    Raises:
        CalibrationError: It can't be used; the message says how to be rid of it.
    """
    try:
        kept = msgspec.json.decode(_read_bytes(path), type=_StoredCalibration)
        table = _build_table(kept.kernels)
        if kept.gpu != path.stem or table.is_empty():
            raise CalibrationError(messages.CALIBRATION_MISPLACED(gpu=kept.gpu, kernels=table.height))
        prepare_kernels(table)
    except (*_UNREADABLE, PredictorError, CalibrationError) as error:
        damaged = messages.CALIBRATION_DAMAGED(path=str(path), reason=str(error).rstrip("."), gpu=path.stem)
        raise CalibrationError(damaged) from error
    return Calibration(kept.gpu, kept.origin, kept.date, kept.software, table)


def _build_table(rows: list[Any]) -> pl.DataFrame:
    return pl.DataFrame([msgspec.structs.asdict(row) for row in rows], schema=KERNEL_COLUMNS)


def _build_rows(kernels: pl.DataFrame) -> list[JsonObject]:
    """Return the rows as dictionaries without missing values."""
    return [{name: value for name, value in row.items() if value is not None} for row in kernels.iter_rows(named=True)]
