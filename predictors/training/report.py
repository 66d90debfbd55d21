"""Format the errors of a fit as a card that ships with the weights, and as tables for the documentation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import tomli_w

from predictors.hardware import MMA_SUFFIX
from predictors.result import CALIBRATED, NEW_RELEASE, SITUATIONS, TOLD_ALL, TOLD_LEVELS
from predictors.training.cells import describe_cells, describe_coverage
from predictors.training.datasets import SOURCES
from predictors.training.sums import BY_LAW, FRACTIONS
from predictors.training.views import VIEWS
from predictors.weights_file import LawConstants, Weights

_HEADER = """\
# What these weights were fitted on and how far off they were on what they hadn't seen.
# Errors: |predicted / measured - 1| in percent, median and 90th percentile over kernels longer than 20 us
# (200 us where the measurement has the launch in it), predicted with what a trace tells of their software.
# Cells: the kernels of one release of an engine on one GPU: how many were fitted; of those of held-out shapes, with all
# told, how many there are, the errors as above, and how many are inside their 90 % interval, in percent.
# Coverage: by what the fit lacked: GPUs and kernels scored; how many are below, above and inside, in percent (of GPUs
# left out, of an interval made of the others); how many times the low end the high one is, and need be for 90 % of
# all kernels and 80 % of each GPU's.

"""
_FIGURES = re.compile(r"\[\n((?: +[\d.]+,\n)+)\]")
"""An array of numbers, each on a line of its own."""
BUNDLED_SOURCES = {
    "traces": "predictors/training/traces.py: kernels of public profiler traces; scored from 2 us on",
    "published": "predictors/training/published.py: rates of GEMMs (their GPUs are rated), times of others",
}
LAW_TABLE_COLUMNS = (
    "GPU", "in base", "GPU held out", "bias", "its class held out", "GPU held out, 30 kernels measured",
    "GPU held out, law alone", "roofline", "peak ratio", "kernels",
)  # fmt: skip
LIBRARY_TABLE_COLUMNS = ("", "library", "in base", "GPU held out", "newest release held out", "GPUs", "kernels")
LIBRARIES_NOTE = "Mean over GPUs of the median and of the 90th percentile of |error|, in percent, of all that was told."
VIEWS_NOTE = (
    "The same, over all GPUs, by what is told of the software: the engine's release and the library, the engine alone, "
    "the library alone (a kernel's name in a trace tells it), nothing. Right: each engine's newest release was left "
    "out of the fit."
)
TOLD = (TOLD_ALL, *VIEWS)
WIDTHS_NOTE = (
    "Factor by which a kernel may be faster or slower, 90 %, by situation; the last columns are what a kernel has on "
    "top of whose software less is told, unless the GPU is calibrated."
)
COVERAGE_NOTE = (
    "Share of a GPU's kernels, in percent, inside their interval in the base, elsewhere inside the width that the "
    "other GPUs need, times the margin: mean over the GPUs, and in brackets the worst GPU."
)
SUMS_NOTE = (
    "Sums of 20 kernels of all laws on one GPU, in percent inside the interval of the sum, by the fraction of their "
    "half-widths that is taken as common to all, and by what the fit says that a law's kernels share: mean over the "
    "GPUs, and in brackets the worst."
)
LAW_TITLES = {
    "gemm half": "GEMM, bf16",
    "gemm fp8": "GEMM, fp8",
    "gemm fp8_block": "GEMM, fp8 in blocks",
    "gemm nvfp4": "GEMM, nvfp4",
    "gemm fp32": "GEMM, fp32",
    "prefill": "Attention, prefill (bf16 and fp8)",
    "decode": "Attention, decode (bf16 and fp8 cache)",
    "latent": "Attention, latent, decode (bf16 and fp8 cache)",
    "encoder": "Attention, encoder, bf16",
    "sequence": "Attention, whole sequences",
    "moe half": "MoE, bf16",
    "moe fp8": "MoE, fp8",
    "moe fp8_block": "MoE, fp8 in blocks",
    "moe nvfp4": "MoE, nvfp4",
    "moe w4a16": "MoE, weights of 4 bits, inputs of 16",
    "moe w4a8": "MoE, weights of 4 bits, inputs of 8",
    "conv half": "Convolution, bf16, layout changes included",
    "conv fp32": "Convolution 3×3, fp32 without TF32",
    "elementwise": "Elementwise",
    "softmax": "Softmax",
    "norm": "Layer norm",
    "copy": "Copies and joins on the GPU",
    "reduction": "Reductions",
    "embedding": "Embeddings",
    "lookup": "Look-ups in embedding tables",
    "optimizer": "Optimizers",
    "memset": "Fills",
    "quantise": "Quantising to fp8",
}


def format_card(
    weights: Weights,
    errors: pl.DataFrame,
    cells: pl.DataFrame,
    held_out: Sequence[str],
    kept: Mapping[str, Any] | None = None,
    coverage: pl.DataFrame | None = None,
) -> str:
    """Return the TOML text of `card.toml`.

    Args:
        weights: Fitted weights.
        errors: From ``evaluate.summarise_errors``.
        cells: From ``cells.summarise_cells``.
        held_out: Slugs of the GPUs that were left out of everything.
        kept: Law -> its entry in the shipped card, of the laws that were not fitted again.
        coverage: From ``widths.compute_coverage``.
    """
    kept = kept or {}
    laws = {
        law: kept[law]
        if law in kept
        else _describe_fit(fitted, *(t.filter(pl.col("law") == law) for t in (errors, cells)))
        | _describe_sides(law, coverage)
        for law, fitted in sorted(weights.laws.items())
    }
    text = tomli_w.dumps({"held_out": list(held_out), "data": _describe_sources(), "laws": laws})
    return _HEADER + _FIGURES.sub(lambda found: f"[{' '.join(found[1].split()).rstrip(',')}]", text)


def _describe_sources() -> dict[str, str]:
    """Return what was measured, by source."""
    fetched = {
        name: f"{source.description}; {source.licence}, {source.origin} {source.pinned}".rstrip(", ")
        for name, source in SOURCES.items()
    }
    return fetched | BUNDLED_SOURCES


def _describe_fit(fitted: LawConstants, errors: pl.DataFrame, cells: pl.DataFrame) -> dict[str, Any]:
    """Return a law's entry in the card: its GPUs, and the errors on each and of each release on it."""
    rated = {"rated": sorted(fitted.rated)} if fitted.rated else {}
    return {"gpus": _list_boards(fitted.gpu), **rated, **_group_errors(errors), "cells": describe_cells(cells)}


def _describe_sides(law: str, coverage: pl.DataFrame | None) -> dict[str, Any]:
    """Return a law's coverage by situation, of all vendors' GPUs, as the last key of its entry in the card."""
    if coverage is None:
        return {}
    of_law = coverage.filter((pl.col("law") == law) | pl.col("law").str.starts_with(f"{law} on "))
    return {"coverage": describe_coverage(of_law)}


def _group_errors(of_law: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return the errors on each GPU of one law by the situation in which they were measured."""
    order = {where: place for place, where in enumerate(SITUATIONS)}
    found: dict[str, list[dict[str, Any]]] = {}
    alone: set[str] = set()
    for row in sorted(of_law.to_dicts(), key=lambda row: order.get(row["situation"], len(order))):
        kind = {"base": "in_base", CALIBRATED: "calibrated"}.get(row["situation"])
        # Rows after that of the GPU left out alone are those with its whole class left out.
        kind = kind or ("class_left_out" if row["gpu"] in alone else "left_out")
        alone |= {row["gpu"]} if kind == "left_out" else set()
        figures = {"median": round(row["model_median"], 1), "p90": round(row["model_p90"], 1), "kernels": row["n"]}
        found.setdefault(kind, []).append({"gpu": row["gpu"], **figures})
    return found


def format_markdown(
    errors: pl.DataFrame, views: pl.DataFrame, libraries: pl.DataFrame, weights: Weights, inside: pl.DataFrame
) -> str:
    """Return tables in Markdown: errors by law and GPU, widths and coverage of intervals.

    Args:
        errors: From ``evaluate.summarise_errors``.
        views: From ``evaluate.summarise_views``.
        libraries: From ``evaluate.summarise_by_library``.
        weights: Weights with interval widths.
        inside: From ``widths.compute_coverage``.
    """
    order = {law: place for place, law in enumerate(LAW_TITLES)}
    laws = sorted(errors["law"].unique().to_list(), key=lambda law: (order.get(law, len(order)), law))
    parts = [_format_law_table(law, errors.filter(pl.col("law") == law)) for law in laws]
    return "\n".join(
        [
            *parts,
            *_format_views(views),
            *_format_libraries(libraries),
            *_format_widths(weights),
            *_format_coverage(inside),
            "",
        ]
    )


def _format_views(views: pl.DataFrame) -> list[str]:
    """One line per law: errors by what is told, of releases in the fit and of those left out."""
    if views.is_empty():
        return []
    columns = [(where, view) for where in ("base", NEW_RELEASE) for view in TOLD]
    cells = {
        (row["law"], row["situation"], row["view"]): f"{row['median']:.1f} / {row['p90']:.0f}"
        for row in views.to_dicts()
    }
    laws = [law for law in LAW_TITLES if law in views["law"]]
    rows = [
        f"| {LAW_TITLES[law]} | {' | '.join(cells.get((law, *column), '–') for column in columns)} |" for law in laws
    ]
    head = f"| | {' | '.join(TOLD)} | {' | '.join(f'new: {view}' for view in TOLD)} |"
    return ["## What is told of the software", "", VIEWS_NOTE, "", head, "|---" * 9 + "|", *rows, ""]


def _format_libraries(libraries: pl.DataFrame) -> list[str]:
    """One line per law and library."""
    if libraries.is_empty():
        return []
    lines = ["## Kernels by library", "", LIBRARIES_NOTE, "", f"| {' | '.join(LIBRARY_TABLE_COLUMNS)} |"]
    lines.append("|---" * len(LIBRARY_TABLE_COLUMNS) + "|")
    alone = libraries.filter(pl.col("situation").is_in(SITUATIONS[1:])).with_columns(
        pl.col("situation").replace_strict({where: at for at, where in enumerate(SITUATIONS)})
    )
    nearest = alone.sort("situation").unique(["law", "framework", "gpu"], keep="first", maintain_order=True)
    for (law, library), rows in libraries.group_by("law", "framework", maintain_order=True):
        of = (pl.col("law") == law) & (pl.col("framework") == library)
        base = rows.filter(pl.col("situation") == "base")
        parts = (base, nearest.filter(of), rows.filter(pl.col("situation") == NEW_RELEASE))
        counts = (str(base.height), str(base["n"].sum()))
        lines.append(f"| {' | '.join((str(law), str(library), *map(_format_mean, parts), *counts))} |")
    return [*lines, ""]


def _format_mean(rows: pl.DataFrame) -> str:
    """Means over GPUs."""
    median, p90 = rows.select(pl.col("model_median", "model_p90").mean()).row(0)
    return "–" if median is None else f"{median:.1f} / {p90:.0f}"


def _format_widths(weights: Weights) -> list[str]:
    where = (*SITUATIONS, CALIBRATED)
    rows = [
        f"| {law} | {' | '.join(f'× {math.exp(widths[s]):.2f}' for s in where)} | "
        f"{' | '.join(f'× {math.exp(widths.get(s, 0.0)):.2f}' for s in TOLD_LEVELS)} |"
        for law, widths in sorted(weights.intervals.items())
    ]
    head = f"| | {' | '.join(where)} | {' | '.join(TOLD_LEVELS)} |"
    columns = 1 + len(where) + len(TOLD_LEVELS)
    return ["## Widths of the intervals", "", WIDTHS_NOTE, "", head, "|---" * columns + "|", *rows, ""]


def _format_coverage(inside: pl.DataFrame) -> list[str]:
    """Mean over GPUs and the worst GPU of each law and situation."""
    cells: dict[str, dict[str, str]] = {}
    for (law, where), part in inside.group_by("law", "situation", maintain_order=True):
        worst = part.sort("inside").row(0, named=True)
        cells.setdefault(str(law), {})[str(where)] = (
            f"{np.mean(part['inside'].to_numpy()):.0f} ({worst['inside']:.0f} {worst['gpu']})"
        )
    where = (*SITUATIONS, CALIBRATED)
    rows = [f"| {law} | {' | '.join(found.get(s, '–') for s in where)} |" for law, found in sorted(cells.items())]
    head = f"| | {' | '.join(where)} |"
    return ["## Coverage of the intervals", "", COVERAGE_NOTE, "", head, "|---" * (len(where) + 1) + "|", *rows]


def format_sum_coverage(coverage: pl.DataFrame) -> str:
    """Format how often the intervals of sums hold them.

    Args:
        coverage: From ``sums.compute_sum_coverage``.
    """
    names = [*(f"{fraction:g}" for fraction in FRACTIONS), BY_LAW]
    lines = [
        f"## Coverage of sums\n\n{SUMS_NOTE}\n",
        f"| | told | {' | '.join(names)} | GPUs |",
        "|---" * (len(names) + 3) + "|",
    ]
    for (where, told), rows in coverage.group_by("situation", "told", maintain_order=True):
        cells = [f"{np.mean(rows[name].to_numpy()):.0f} ({np.min(rows[name].to_numpy()):.0f})" for name in names]
        lines.append(f"| {' | '.join((str(where), str(told), *cells, str(rows.height)))} |")
    return "\n".join([*lines, ""])


def _format_law_table(law: str, rows: pl.DataFrame) -> str:
    """One line per GPU: in the base, held out alone, with its class, with a calibration; then the baselines."""
    lines = [
        f"## {LAW_TITLES.get(law, law)}",
        "",
        f"| {' | '.join(LAW_TABLE_COLUMNS)} |",
        "|---" * len(LAW_TABLE_COLUMNS) + "|",
    ]
    for (gpu,), of_gpu in rows.group_by("gpu", maintain_order=True):
        by = {row["situation"]: row for row in of_gpu.to_dicts()}
        base, calibrated = by["base"], by.get(CALIBRATED)
        alone, with_class, *_ = *(by[s] for s in SITUATIONS[1:] if s in by), None, None
        shown = alone or base
        held = (
            [f"{_format_figure(alone, 'model')} ({alone['situation']})", f"{alone['bias']:+.0f}"]
            if alone
            else ["–", "–"]
        )
        cells = [
            str(gpu), _format_figure(base, "model"), *held, _format_figure(with_class, "model"),
            _format_figure(calibrated, "model"),
            _format_figure(alone, "law"), _format_figure(shown, "roofline"), _format_figure(shown, "peak_ratio"),
            str(base["n"]),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _format_figure(row: dict[str, Any] | None, name: str) -> str:
    if row is None:
        return "–"
    median, p90 = row[f"{name}_median"], row[f"{name}_p90"]
    return "–" if median is None or p90 is None else f"{median:.1f} / {p90:.0f}"


def _list_boards(slugs: Iterable[str]) -> list[str]:
    """GPUs, however their kernels see them."""
    return sorted({slug.removesuffix(MMA_SUFFIX) for slug in slugs})
