"""Show measured kernels with less of their identity than is known: what a user's trace or table may tell.

A kernel that SGLang 0.5.14 ran in Triton is shown as it is, and

- with its engine alone: 'sglang', as in tables without versions,
- with engine and release: 'sglang' 0.5.14, as a user tells them of a job whose kernels have no names,
- with engine and library: Triton in 'sglang', as where the names of a trace tell the library,
- with its library alone: 'triton', as the kernel's name in a trace tells it,
- without a name.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from predictors.columns import LawInputs, build_law_inputs
from predictors.kernel_identity import is_known_by_library
from predictors.result import ENGINE, LIBRARY, NOTHING, RELEASE_ALONE, UNVERSIONED

VIEWS = (ENGINE, LIBRARY, NOTHING, UNVERSIONED, RELEASE_ALONE)
MEASURED_COLUMNS = ("cold", "quantised_input")
"""Columns of a law that say how a kernel was measured, whatever is told of it."""
_NO_NAME = pl.lit(None, pl.String)
_NO_RELEASE = pl.lit(None, pl.Float64)


def can_show(view: str) -> pl.Expr:
    """Whether rows tell as much as a view does."""
    if view == ENGINE:
        return pl.col("engine").is_not_null()
    if view == NOTHING:
        return pl.col("framework").is_not_null()
    named = pl.col("engine").is_not_null() & is_known_by_library()
    return named if view == LIBRARY else named & pl.col("release").is_not_null()


def get_time_column(view: str) -> str:
    """The column of scored rows with the times that are predicted of what a view tells."""
    return f"{view.replace(' ', '_')}_us"


def get_spread_column(view: str) -> str:
    """The column with the spread of the fitted kernels that these may be (``model.compute_software_spread``)."""
    return f"{view.replace(' ', '_')}_spread"


def show(table: pl.DataFrame, view: str) -> pl.DataFrame:
    """Return rows with what a view tells of them.

    Args:
        table: Rows that ``can_show`` holds for, with `law`.
        view: One of `VIEWS`.
    """
    if view == ENGINE:
        return table.with_columns(framework="engine", release=_NO_RELEASE)
    if view == NOTHING:
        return table.with_columns(framework=_NO_NAME, engine=_NO_NAME, release=_NO_RELEASE)
    if view == UNVERSIONED:
        return table.with_columns(release=_NO_RELEASE)
    if view == RELEASE_ALONE:
        return table.with_columns(framework="engine")
    return table.with_columns(engine=_NO_NAME, release=_NO_RELEASE)


def build_shown_inputs(table: pl.DataFrame, shown: pl.DataFrame) -> LawInputs:
    """Return a law's inputs of shown rows, as they were measured.

    Args:
        table: The rows with all that is known.
        shown: From ``show``.
    """
    inputs = build_law_inputs(shown)
    if shown is table:
        return inputs
    known = build_law_inputs(table).numbers
    return replace(inputs, numbers={**inputs.numbers, **{name: known[name] for name in MEASURED_COLUMNS}})
