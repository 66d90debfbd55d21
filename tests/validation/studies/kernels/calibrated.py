"""How far off are kernels of a GPU that was left out, before and after 30 of its kernels were measured?

Each engine's kernels of a library and a release are calibrated and scored by themselves, by held-out shapes of which
none was measured; the fit lacks the GPU, and the prior of the calibration is of the other GPUs' errors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.calibrate import calibrate
from predictors.columns import build_law_inputs
from predictors.model import evaluate_law
from predictors.training.__main__ import BUNDLED_TABLES
from predictors.training.calibration import (
    CALIBRATION_KERNELS,
    build_error_blocks,
    build_min_scored_us,
    choose_kernels,
    prepare_candidates,
)
from predictors.training.evaluate import sample_test_shapes
from predictors.training.fit import (
    LawFit,
    LawMeasurements,
    fit_law_and_corrections,
    load_measurements,
    subtract_launch_us,
)
from predictors.training.fit_spread import fit_spread
from predictors.training.report import LAW_TITLES
from predictors.weights_file import Weights
from tests.validation.study import KERNEL_DATA, find_input, format_table, format_yes

INPUTS = (KERNEL_DATA,)
LAWS = ("gemm half", "gemm fp8", "prefill", "decode")
SOFTWARE = ("framework", "engine", "release")
MIN_SCORED, MIN_CANDIDATES = 50, 100
"""Kernels of a release that are scored, and that those to measure are chosen from."""
MIN_SCORED_US = 20.0
WAYS = ("left out", "calibrated", "in base")


def run() -> str:
    """Return a table for each law: its GPUs, and their mean."""
    measured = load_measurements([find_input(KERNEL_DATA), *BUNDLED_TABLES])
    tables = [
        "# Kernels of a GPU calibrated with 30 of them\n",
        "Median / 90th percentile of |error| in percent over kernels longer than 20 µs, means over the releases of the "
        "engines. *In base*: the GPU's other shapes were in the fit, thousands instead of 30. *Sibling*: whether a GPU "
        "of its architecture was in the fit.\n",
    ]
    for law in LAWS:
        tables += [f"## {LAW_TITLES[law]}\n", format_law(pl.concat(score_law(law, measured[law])))]
    return "\n".join(tables)


def score_law(law: str, parts: Sequence[LawMeasurements]) -> Iterator[pl.DataFrame]:
    """Yield the errors of each of NVIDIA's GPUs of which several releases were measured."""
    everything = fit_law_and_corrections(law, parts)
    measured = [part for part in parts if not part.is_published_rate and part.hardware.gpu.vendor == "nvidia"]
    without = {part.gpu: leave_out(law, part, parts, everything) for part in measured}
    blocks = {part.gpu: build_error_blocks(without[part.gpu], everything, part) for part in measured}
    near = fit_spread(law, [block for of_gpu in blocks.values() for block in of_gpu])
    for part in measured:
        others = [block for other in measured if other.board != part.board for block in blocks[other.gpu]]
        alone = replace(without[part.gpu], spread=fit_spread(law, others, near))
        yield from score_gpu(part, alone, everything)


def leave_out(law: str, part: LawMeasurements, parts: Sequence[LawMeasurements], near: LawFit) -> LawFit:
    """Fit a law without a GPU, however its kernels see it."""
    others = [other for other in parts if other.board != part.board]
    return fit_law_and_corrections(law, others, near, {part.hardware.architecture})


def score_gpu(part: LawMeasurements, alone: LawFit, everything: LawFit) -> Iterator[pl.DataFrame]:
    """Yield a row for each release of an engine: errors in percent, a column for each of `WAYS` and quantile."""
    candidates = prepare_candidates(part, everything)
    launch_us = everything.launch_us.get(part.gpu, 0.0)
    long = (pl.col("latency_us") > MIN_SCORED_US) & (pl.col("latency_us") > build_min_scored_us(launch_us))
    tests = sample_test_shapes(part).table.filter(long).drop_nulls(list(SOFTWARE))
    for software, rows in tests.group_by(SOFTWARE, maintain_order=True):
        mine = pl.all_horizontal(pl.col(name) == value for name, value in zip(SOFTWARE, software, strict=True))
        choice = candidates.filter(mine, pl.col("latency_us") > pl.col("shortest_us"))
        if rows.height < MIN_SCORED or choice.height < MIN_CANDIDATES:
            continue
        known = choose_kernels(choice, part, alone)
        if known.height < CALIBRATION_KERNELS:
            continue
        weights = (alone.weights, calibrate(known, part.hardware.gpu, alone.weights), everything.weights)
        errors = {way: compute_errors_pct(part, rows, launch_us, one) for way, one in zip(WAYS, weights, strict=True)}
        yield pl.DataFrame(
            {
                "gpu": part.gpu,
                "sibling": alone.weights.has_sibling(alone.law, part.hardware),
                **{f"{way} {q}": float(np.quantile(one, q)) for way, one in errors.items() for q in (0.5, 0.9)},
            }
        )


def compute_errors_pct(part: LawMeasurements, rows: pl.DataFrame, launch_us: float, weights: Weights) -> Floats:
    """Return |error| of kernels in percent."""
    (law,) = weights.laws
    time_us = evaluate_law(build_law_inputs(rows), law, part.hardware, weights)[1]
    return np.asarray(np.abs(100 * (time_us / subtract_launch_us(rows, launch_us) - 1)))


def format_law(scored: pl.DataFrame) -> str:
    """Return the table of a law: a row for each GPU, and the means of those with siblings, of the others, of all."""
    means = pl.all().exclude("gpu", "sibling", "releases").mean()
    by_gpu = scored.group_by("gpu", "sibling").agg(means, releases=pl.len()).sort("gpu")
    headings = ("GPU", "sibling", "releases", *WAYS)
    rows = [format_row(row["gpu"], row) for row in by_gpu.iter_rows(named=True)]
    for title, some in (
        ("with a sibling", by_gpu.filter("sibling")),
        ("without", by_gpu.filter(~pl.col("sibling"))),
        ("all", by_gpu),
    ):
        if not some.is_empty():
            row = some.select(means, pl.col("releases").sum()).row(0, named=True)
            rows.append(format_row(f"mean, {title}", row))
    return format_table(headings, rows)


def format_row(title: str, row: dict[str, float]) -> tuple[str, ...]:
    """Return the cells of a GPU or of a mean."""
    sibling = format_yes(bool(row["sibling"])) if "sibling" in row else ""
    cells = (f"{row[f'{way} 0.5']:.1f} / {row[f'{way} 0.9']:.0f}" for way in WAYS)
    return title, sibling, str(row["releases"]), *cells
