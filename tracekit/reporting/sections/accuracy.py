"""Errors of the latency laws in use, on kernels that they weren't fitted to."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Annotated, Any

import polars as pl

from predictors.weights_file import SHIPPED_WEIGHTS
from tracekit.arrays import IN_ORDER
from tracekit.format import format_percent
from tracekit.prediction import Prediction
from tracekit.reporting.columns import Column


@dataclass(frozen=True, slots=True)
class LawError:
    """One latency law and its errors.

    Attributes:
        on_target: Error after the fit on each target; ``None`` for a GPU without
            kernels of more than 20 µs to compare with.
    """

    law: Annotated[str, Column("Kernel family and precision; half: tensor-core formats from TF32 to 16 bits.", "law")]
    share: Annotated[float, Column("Kernel time of the measured step that it models, percent.", "of kernel time")]
    gpus: Annotated[tuple[str, ...], Column("GPUs that it was fitted to.", "fitted on")]
    held_out: Annotated[
        float | None,
        Column("Median error in percent on a GPU that was left out of the fit.", "GPU held out", format_percent),
    ]
    worst: Annotated[float | None, Column("The same for the GPU that came out worst.", "worst GPU", format_percent)]
    on_target: tuple[float | None, ...]


LAW_TITLES = {"sequence": "attention, whole sequences"}
"""Laws whose displayed name differs from their own name."""


def build_law_errors(kernels: pl.DataFrame, targets: Sequence[Prediction]) -> tuple[LawError, ...]:
    """Build the errors of the laws in use, most modelled time first."""
    whole = kernels["time_us"].sum() or 1.0
    times = kernels.lazy().drop_nulls("law").group_by("law").agg(pl.col("time_us").sum())
    rows = times.sort("time_us", "law", descending=[True, False]).collect(engine=IN_ORDER).iter_rows()
    gpus = [target.gpu for target in targets]
    return tuple(_make_law_error(law, 100 * time / whole, gpus) for law, time in rows)


def _make_law_error(law: str, share: float, targets: Sequence[str]) -> LawError:
    entry = _load_card().get(law, {})
    held_out = [row["median"] for row in entry.get("left_out", ())]
    known = {row["gpu"]: row["median"] for row in entry.get("in_base", ())}
    return LawError(
        law=LAW_TITLES.get(law, law),
        share=share,
        gpus=tuple(entry.get("gpus", ())),
        held_out=median(held_out) if held_out else None,
        worst=max(held_out, default=None),
        on_target=tuple(known.get(gpu) for gpu in targets),
    )


@cache
def _load_card() -> dict[str, Any]:
    laws: dict[str, Any] = tomllib.loads((SHIPPED_WEIGHTS / "card.toml").read_text())["laws"]
    return laws
