"""How far the weights in use were off on kernels that they had not seen."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import polars as pl

from predictors.fitted import SHIPPED, shipped_sha256
from tracekit.prediction import Prediction


@dataclass(frozen=True, slots=True)
class LawError:
    """One law of kernel times, and its errors.

    Attributes:
        law: Its name.
        share: GPU time of the measured step that it models, percent.
        gpus: The GPUs that it was fitted on.
        held_out: Error on a GPU that was left out of the fit, percent: the median over such GPUs of the median over
            kernels. ``None`` where that wasn't measured.
        worst: The same of the GPU that came out worst.
        on_target: The error after the fit on each target, or where only others measured it; ``None`` for a GPU that
            nobody measured.
    """

    law: str
    share: float
    gpus: tuple[str, ...]
    held_out: float | None
    worst: float | None
    on_target: tuple[float | None, ...]


NAMES = {"sequence": "attention, whole sequences"}
"""Laws that are told by another name than their own."""


def build(kernels: pl.DataFrame, targets: Sequence[Prediction]) -> tuple[LawError, ...]:
    """The laws in use, by the time that they model."""
    whole = kernels["time_us"].sum() or 1.0
    times = kernels.drop_nulls("law").group_by("law").agg(pl.col("time_us").sum())
    rows = times.sort("time_us", "law", descending=[True, False]).iter_rows()
    gpus = [target.gpu for target in targets]
    return tuple(_error(law, 100 * time / whole, gpus) for law, time in rows)


def _error(law: str, share: float, targets: Sequence[str]) -> LawError:
    entry = _card().get(law, {})
    held_out = [row["median"] for row in entry.get("left_out", {}).values()]
    known = _elsewhere().get(law, {}) | {gpu: row["median"] for gpu, row in entry.get("in_base", {}).items()}
    return LawError(
        law=NAMES.get(law, law),
        share=share,
        gpus=tuple(entry.get("gpus", ())),
        held_out=median(held_out) if held_out else None,
        worst=max(held_out, default=None),
        on_target=tuple(known.get(gpu) for gpu in targets),
    )


@cache
def _card() -> dict[str, Any]:
    laws: dict[str, Any] = tomllib.loads((SHIPPED / "card.toml").read_text())["laws"]
    return laws


@cache
def _elsewhere() -> dict[str, dict[str, float]]:
    """Law -> GPU -> error, of GPUs that only others measured."""
    return dict(_of_these_weights("elsewhere.toml").get("laws", {}))


def _of_these_weights(file: str) -> dict[str, Any]:
    """A table beside the weights; nothing where it is of other weights."""
    found: dict[str, Any] = tomllib.loads((SHIPPED / file).read_text(encoding="utf-8"))
    return found if found["weights"] == shipped_sha256() else {}
