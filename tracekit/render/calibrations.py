"""Render calibrations as text and JSON: the stored list, and the effect of a new one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.text import Text

from tracekit.calibration import Calibration
from tracekit.render.json import dump_document
from tracekit.render.screen import Listing, Screen


def serialize_calibrations(kept: Sequence[Calibration]) -> str:
    """Return the stored calibrations as JSON."""
    return dump_document({"calibrations": [_collect_calibration_facts(one) for one in kept]})


def serialize_new_calibration(one: Calibration, errors: pl.DataFrame, path: Path) -> str:
    """Return a new calibration as JSON."""
    return dump_document({**_collect_calibration_facts(one), "file": str(path), "errors_pct": errors.to_dicts()})


def render_calibration_table(kept: Sequence[Calibration]) -> Screen:
    """Render a table with one row per calibration."""
    if not kept:
        return Screen(tables=[Text("No GPU is calibrated. `tracekit calibrate --help` says how.")])
    rows = (
        (one.gpu, one.origin, one.date, one.software, ", ".join(one.families), str(one.kernels.height)) for one in kept
    )
    headings = ("GPU", "from", "date", "software", "families", "kernels")
    return Screen(tables=[Listing(headings, rows, right=("kernels",))])


def render_new_calibration(one: Calibration, errors: pl.DataFrame, path: Path) -> Screen:
    """Render the errors of the measured kernels without the calibration and in cross-validation with it."""
    numbers = ("measured", "error before", "error now")
    rows = (
        (
            law,
            str(number),
            f"{before:.1f} %",
            "–" if after is None else f"{after:.1f} %",
            "" if sharpens else "left out",
        )
        for law, number, before, after, sharpens in errors.iter_rows()
    )
    hint = (
        "Median |error| of the measured kernels: as predicted without any of them, and each fifth of them as predicted "
        "with the others; where that is worse, they are left out. The rest is used in every prediction for this GPU; "
        "--no-calibration leaves it out."
    )
    table = Listing(("kernels of", *numbers, ""), rows, right=numbers)
    return Screen(f"kept: {one.label}", tables=[table], notes=[hint, str(path)])


def _collect_calibration_facts(one: Calibration) -> dict[str, Any]:
    facts = {name: getattr(one, name) for name in ("gpu", "origin", "date", "software")}
    return facts | {"families": list(one.families), "kernels": one.kernels.height}
