"""Note how predictions for a GPU compared with published throughputs."""

import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

from predictors import Gpu
from predictors.hardware import derive_hardware
from predictors.transfer import classify_kinship
from predictors.weights_file import SHIPPED_WEIGHTS, shipped_sha256
from tracekit.messages import Message
from tracekit.messages import predictions as told
from tracekit.prediction.changed_step import ChangedStep
from tracekit.prediction.part import GPU_WORK

TRACK_RECORD_FILE = SHIPPED_WEIGHTS / "jobs.toml"
"""Output of tests/validation/studies/whole_jobs/throughputs.py.

By GPU: the number of throughput pairs, the median error and the worst error, in percent.
"""
MIN_PAIRS = 20
"""Least number of pairs for a note."""
MIN_NOTED_ERROR_PCT = 10.0
"""Least median error for a note."""


def note_track_record(source: Gpu | None, target: Gpu, changed: ChangedStep) -> Iterator[Message]:
    """Note that published jobs ran faster or slower on a GPU than predicted, as the traced one may too.

    Args:
        source: GPU of the trace. Its siblings get no note, as the published pairs are of other kinds of GPU.
        target: GPU to predict.
        changed: The step; where such kernels hardly change it, there is no note.
    """
    of = _find_track_record(source, target)
    if of is None:
        return
    step_us = changed.compute_step_us((GPU_WORK, 1 + of["median"] / 100))
    if not changed.is_changed_by(step_us):
        return
    note = told.TARGET_PREDICTED_TOO_FAST if of["median"] > 0 else told.TARGET_PREDICTED_TOO_SLOW
    yield note(pairs=of["pairs"], gpu=target.slug, bias_pct=abs(of["median"]), worst_pct=of["worst"], step_us=step_us)


def find_known_bias(source: Gpu | None, target: Gpu) -> float:
    """Return the ratio of measured to predicted times that :func:`note_track_record` states; 1.0 without a note.

    Args:
        source: GPU of the trace.
        target: GPU to predict.
    """
    of = _find_track_record(source, target)
    return 1.0 if of is None else 1 + float(of["median"]) / 100


def _find_track_record(source: Gpu | None, target: Gpu) -> dict[str, Any] | None:
    """Return the record that says something of predictions from one GPU for another."""
    of: dict[str, Any] | None = _load_track_record().get(target.slug)
    if of is None or of["pairs"] < MIN_PAIRS or abs(of["median"]) < MIN_NOTED_ERROR_PCT:
        return None
    if source is None or classify_kinship(derive_hardware(source), derive_hardware(target)) == "sibling":
        return None
    return of


@cache
def _load_track_record() -> dict[str, Any]:
    """Load the table; it is empty where the table belongs to other weights."""
    found: dict[str, Any] = tomllib.loads(TRACK_RECORD_FILE.read_text(encoding="utf-8"))
    return dict(found["jobs"]) if found["weights"] == shipped_sha256() else {}
