"""Render calibrations as text and JSON: the stored list, and the effect of a new one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.calibration import Calibration
from tracekit.escape import to_line
from tracekit.render.json import dump_document
from tracekit.render.screen import make_plain_table


def serialize_calibrations(kept: Sequence[Calibration]) -> str:
    """Return the stored calibrations as JSON."""
    return dump_document({"calibrations": [_collect_facts(one) for one in kept]})


def serialize_new_calibration(one: Calibration, errors: pl.DataFrame, path: Path) -> str:
    """Return a new calibration as JSON."""
    return dump_document({**_collect_facts(one), "file": str(path), "errors_pct": errors.to_dicts()})


def render_calibration_table(kept: Sequence[Calibration]) -> RenderableType:
    """Render a table with one row per calibration."""
    if not kept:
        return Text("No GPU is calibrated. `tracekit calibrate --help` says how.")
    columns = _make_table("GPU", "from", "date", "software", "families")
    columns.add_column("kernels", justify="right", no_wrap=True)
    for one in kept:
        texts = (one.gpu, one.origin, one.date, one.software, ", ".join(one.families))
        columns.add_row(*map(to_line, texts), str(one.kernels.height))
    return columns


def render_new_calibration(one: Calibration, errors: pl.DataFrame, path: Path) -> RenderableType:
    """Render the errors of the measured kernels without the calibration and in cross-validation with it."""
    columns = _make_table("kernels of")
    for heading in ("measured", "error before", "error now"):
        columns.add_column(heading, justify="right", no_wrap=True)
    columns.add_column("")
    for law, number, before, after, sharpens in errors.iter_rows():
        now = "–" if after is None else f"{after:.1f} %"
        columns.add_row(law, str(number), f"{before:.1f} %", now, "" if sharpens else "left out")
    hint = (
        "Median |error| of the measured kernels: as predicted without any of them, and each fifth of them as predicted "
        "with the others; where that is worse, they are left out. The rest is used in every prediction for this GPU; "
        "--no-calibration leaves it out."
    )
    return Group(Text(f"kept: {one.label}", "bold"), columns, Text(hint, "dim"), Text(str(path), "dim"))


def _make_table(first: str, *others: str) -> Table:
    columns = make_plain_table(gap=1)
    columns.add_column(first, style="bold", no_wrap=True)
    for heading in others:
        columns.add_column(heading)
    return columns


def _collect_facts(one: Calibration) -> dict[str, Any]:
    facts = {name: getattr(one, name) for name in ("gpu", "origin", "date", "software")}
    return facts | {"families": list(one.families), "kernels": one.kernels.height}
