"""Calibrations for people and machines: what is kept, and what a new one changes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.calibration import Calibration
from tracekit.render.dump import document
from tracekit.render.grid import plain


def table_json(kept: Sequence[Calibration]) -> str:
    """The list as JSON."""
    return document({"calibrations": [_facts(one) for one in kept]})


def kept_json(one: Calibration, errors: pl.DataFrame, path: Path) -> str:
    """A new calibration as JSON."""
    return document({**_facts(one), "file": str(path), "errors_pct": errors.to_dicts()})


def table(kept: Sequence[Calibration]) -> RenderableType:
    """One line for each calibration."""
    if not kept:
        return Text("No GPU is calibrated. `tracekit calibrate --help` says how.")
    columns = _columns("GPU", "from", "date", "software", "families")
    columns.add_column("kernels", justify="right", no_wrap=True)
    for one in kept:
        columns.add_row(one.gpu, one.origin, one.date, one.software, ", ".join(one.families), str(one.kernels.height))
    return columns


def kept(one: Calibration, errors: pl.DataFrame, path: Path) -> RenderableType:
    """How far off the measured kernels were, and are where each is predicted from the others."""
    columns = _columns("kernels of")
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


def _columns(first: str, *others: str) -> Table:
    columns = plain(gap=1)
    columns.add_column(first, style="bold", no_wrap=True)
    for heading in others:
        columns.add_column(heading)
    return columns


def _facts(one: Calibration) -> dict[str, Any]:
    facts = {name: getattr(one, name) for name in ("gpu", "origin", "date", "software")}
    return facts | {"families": list(one.families), "kernels": one.kernels.height}
