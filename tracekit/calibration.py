"""Kernels measured on a GPU, kept on this machine and used in every prediction for that GPU: one JSON file each."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import polars as pl

from predictors import Gpu, KernelTableError, PredictorError, identify_gpu, list_gpus, load_gpu, resolve_gpu
from predictors.kernels import COLUMNS
from predictors.measured import distinct, sharpening
from predictors.stacks import IN_A_LOOP
from tracekit import outputs
from tracekit.errors import CalibrationError, OutputError
from tracekit.replay.run import Run
from tracekit.workload.names.stack import attention_stack

FORMAT = 1
NOISY = 0.2
"""Half the quartiles' distance over the median, from which on a measured kernel is left out."""
MOST = 2.0**53
"""Of any number: larger ones no kernel has."""
LEAST_WHOLE_US = 10
"""Times that were cut to whole microseconds are off by up to a tenth from here on."""

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measurements on one GPU.

    Attributes:
        gpu: Canonical name of the GPU.
        origin: Where they are from: ``"bench"`` or ``"trace"``.
        date: When they were taken in, ``YYYY-MM-DD``.
        software: What they ran on, as far as that is known.
        kernels: Kernel table of ``predictors`` with ``measured_us``.
    """

    gpu: str
    origin: str
    date: str
    software: str
    kernels: pl.DataFrame

    @property
    def families(self) -> tuple[str, ...]:
        """The families that were measured."""
        return tuple(sorted(self.kernels["family"].unique()))

    @property
    def label(self) -> str:
        """One line that names it."""
        software = f", {self.software}" if self.software else ""
        return f"{self.kernels.height} kernels measured on {self.gpu} ({self.origin}, kept since {self.date}{software})"


def from_bench(path: Path, gpu: str | None = None) -> tuple[Calibration, Gpu]:
    """What the script of ``tracekit calibrate --bench`` wrote.

    Args:
        path: Its result.
        gpu: The GPU, where the result says it wrong.

    Raises:
        CalibrationError: It can't be read, or holds no measurement that can be used.
        PredictorError: ``gpu`` is unknown.
    """
    try:
        found = msgspec.json.decode(_text(path), type=_Bench)
    except msgspec.DecodeError as error:
        raise CalibrationError(f"{path}: not a result of the bench script: {error}.", _HINT) from error
    target = resolve_gpu(gpu).gpu if gpu else _measured_on(found.gpu)
    named = [("torch", found.software.get("torch")), ("driver", found.clocks.get("driver_version"))]
    text = ", ".join(f"{name} {version}" for name, version in named if version)
    steady = _table([row for row in found.kernels if row.spread <= NOISY])
    steady = steady.with_columns(framework=pl.coalesce("framework", pl.lit(IN_A_LOOP)))
    return _calibration(target, "bench", text, steady, str(path)), target


def from_run(run: Run) -> tuple[Calibration, Gpu]:
    """What a trace measured on its own GPU; where times are whole microseconds, only what they tell to a tenth.

    Raises:
        CalibrationError: The trace's GPU isn't known, or none of its kernels has a shape.
    """
    if run.gpu is None:
        raise CalibrationError("the trace doesn't say which GPU it was recorded on.", "Name it with --gpu.")
    rows = run.kernels.with_columns(measured_us=pl.col("dur_ns") / 1e3, framework=attention_stack())
    if rows.select((pl.col("measured_us") % 1 == 0).all()).item():
        rows = rows.filter(pl.col("measured_us") >= LEAST_WHOLE_US)
    return _calibration(run.gpu, "trace", "", rows, str(run.trace.source)), run.gpu


def _calibration(gpu: Gpu, origin: str, software: str, rows: pl.DataFrame, where: str) -> Calibration:
    try:
        kernels = distinct(rows, gpu)
    except KernelTableError as error:
        raise CalibrationError(f"{where}: {error}.") from error
    return Calibration(gpu.slug, origin, datetime.now(UTC).date().isoformat(), software, kernels)


def only_sharpening(calibration: Calibration, errors: pl.DataFrame, gpu: Gpu) -> Calibration:
    """The calibration without kinds of kernels that are predicted worse with it.

    Args:
        calibration: All that was measured.
        errors: Of it, from ``predictors.measured.check``.
        gpu: Where it was measured.

    Raises:
        CalibrationError: Nothing is left.
    """
    kernels = sharpening(calibration.kernels, errors, gpu)
    if kernels.is_empty():
        raise CalibrationError(
            "these measurements sharpen nothing: predicted from each other, their kernels are farther off than before.",
            "Measure more kernels, on a GPU that is idle otherwise.",
        )
    return replace(calibration, kernels=kernels)


def directory() -> Path:
    """Where calibrations are kept."""
    import platformdirs

    return Path(platformdirs.user_data_dir("tracekit", appauthor=False)) / "calibrations"


def stored() -> tuple[Calibration, ...]:
    """All that are kept, by GPU.

    Raises:
        CalibrationError: One can't be read.
    """
    return tuple(_load(path) for path in sorted(directory().glob("*.json")))


def keep(calibration: Calibration) -> Path:
    """Keep one, in place of an older one of the same GPU.

    Raises:
        OutputError: It can't be written.
    """
    path = directory() / f"{calibration.gpu}.json"
    facts = {name: getattr(calibration, name) for name in ("gpu", "origin", "date", "software")}
    text = json.dumps({"format": FORMAT, **facts, "kernels": _rows(calibration.kernels)}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise OutputError(f"{path.parent} can't be made: {error.strerror}.") from error
    with outputs.whole(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
    return path


def remove(gpu: str) -> str:
    """Forget the calibration of a GPU.

    Returns:
        The GPU's canonical name.

    Raises:
        CalibrationError: There is none, or it can't be removed.
    """
    kept = {path.stem for path in directory().glob("*.json")}
    slug = gpu if gpu in kept else resolve_gpu(gpu).gpu.slug
    if slug not in kept:
        raise CalibrationError(f"{slug} isn't calibrated.", "`tracekit calibrate --list` shows what is.")
    path = directory() / f"{slug}.json"
    try:
        path.unlink()
    except OSError as error:
        raise CalibrationError(f"{path} can't be removed: {error.strerror}.") from error
    return slug


def tables(calibrations: Iterable[Calibration], target: Gpu) -> Mapping[Gpu, pl.DataFrame]:
    """What ``predictors.predict`` takes: of the target and of all GPUs that it knows by name."""
    known = {slug: load_gpu(slug) for slug in list_gpus()} | {target.slug: target}
    return {known[one.gpu]: one.kernels for one in calibrations if one.gpu in known}


_HINT = "`tracekit calibrate --bench` gives the script that makes one."

_Number = Annotated[float, msgspec.Meta(ge=0, le=MOST)]
_KINDS: dict[pl.DataType, Any] = {pl.Float64(): _Number | None, pl.Boolean(): bool | None, pl.String(): str | None}
_COLUMNS = [(name, _KINDS[dtype], None) for name, dtype in COLUMNS.items()]
_Row: Any = msgspec.defstruct("_Row", _COLUMNS)
_MeasuredRow: Any = msgspec.defstruct("_MeasuredRow", [("spread", _Number), *_COLUMNS])


class _Device(msgspec.Struct):
    name: str
    sms: int
    memory_bytes: int
    compute_capability: str | None


class _Bench(msgspec.Struct):
    format: Literal[1]
    gpu: _Device
    kernels: list[_MeasuredRow]
    software: dict[str, str | None] = {}
    clocks: dict[str, str] = {}


class _Kept(msgspec.Struct):
    format: Literal[1]
    gpu: str
    origin: str
    date: str
    software: str
    kernels: list[_Row]


def _measured_on(device: _Device) -> Gpu:
    """The GPU that a result names.

    Raises:
        CalibrationError: None that is known.
    """
    try:
        return identify_gpu(*msgspec.structs.astuple(device)).gpu
    except PredictorError as error:  # which names the option that says where a trace was recorded
        raise CalibrationError(str(error).replace("--source-gpu", "--gpu")) from error


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CalibrationError(f"{path} can't be read: {error.strerror}.", _HINT) from error


def _load(path: Path) -> Calibration:
    try:
        kept = msgspec.json.decode(_text(path), type=_Kept)
    except msgspec.DecodeError as error:
        hint = f"Remove it with `tracekit calibrate --remove {path.stem}`."
        raise CalibrationError(f"{path} is damaged: {error}.", hint) from error
    return Calibration(kept.gpu, kept.origin, kept.date, kept.software, _table(kept.kernels))


def _table(rows: list[Any]) -> pl.DataFrame:
    return pl.DataFrame([msgspec.structs.asdict(row) for row in rows], schema=COLUMNS)


def _rows(kernels: pl.DataFrame) -> list[Facts]:
    """Rows without what they don't have."""
    return [{name: value for name, value in row.items() if value is not None} for row in kernels.iter_rows(named=True)]
