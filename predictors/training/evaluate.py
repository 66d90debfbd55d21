"""Errors on what was not trained on: shapes held out, GPUs held out, classes of GPUs held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from predictors.columns import sizes
from predictors.fitted import Weights
from predictors.intervals import situation
from predictors.machine import Machine
from predictors.model import evaluate
from predictors.roofline import bound_us
from predictors.stacks import ATTENTION_STACKS
from predictors.surface import Spread
from predictors.training.calibration import blocks, calibrated, shortest_us
from predictors.training.fit import LawFit, Measured, fit, kernel_us, sample
from predictors.training.fit_spread import Block, fit_spread
from predictors.transfer import relation

TEST_ROWS = 1500
"""Rows of one framework on one GPU that are scored."""
FEW_KERNELS = 20
"""Of a GPU with fewer, the errors on its other kernels aren't known: its intervals are those of a GPU left out."""
STACK_KNOWN = pl.col("framework").is_in(ATTENTION_STACKS).fill_null(False)
OF_A_STACK = STACK_KNOWN & (pl.col("law") != "sequence")
"""Rows of engines that are there once more under whose kernels they are."""
SHOWN_US = 20.0
"""Shorter ones count for the intervals, not in the tables."""


def cross_validate(law: str, parts: Sequence[Measured]) -> tuple[LawFit, pl.DataFrame]:
    """Fits a law on all its GPUs, then without each GPU and without each class, and scores what was never trained on.

    Args:
        law: its name.
        parts: measurements, of a GPU its kernels, its published rates or both.

    Returns:
        The fit on all GPUs, and one row per scored kernel: `law`, `gpu`, `situation`, `framework`, `shape`,
        `latency_us` (without launch), `versions_us` (null, or each software version's), `model_us`, `nameless_us` (its
        framework not told), `law_us`, `roofline_us`, and of one other GPU that has measured the same kernel
        `source_ratio` (log of its measured over modelled time), `kinship`, `peak_ratio_us`.
    """
    everything = fit(law, parts)
    measured = {p.gpu: p for p in parts if not p.rated}
    tests = {gpu: held_shapes(p) for gpu, p in measured.items()}
    rows = [_score(everything, everything, test, []) for test in tests.values()]
    alone: dict[str, LawFit] = {}
    for held in _hold_outs(parts):
        left = [p for p in parts if p.gpu not in held]
        if all(p.rated for p in left):
            continue
        seen = held & measured.keys()
        without = fit(law, left, everything, {measured[gpu].machine.architecture for gpu in seen})
        pairs = [test for gpu, test in tests.items() if gpu not in held]
        rows += [_score(without, everything, tests[gpu], pairs) for gpu in sorted(seen)]
        if len({measured[gpu].board for gpu in seen}) == 1:
            alone |= dict.fromkeys(seen, without)
    missed = {gpu: blocks(alone[gpu], everything, p) for gpu, p in measured.items() if gpu in alone}
    spread = _spread(law, missed)
    for part in measured.values():
        if part.gpu in alone:
            others = {gpu: of_gpu for gpu, of_gpu in missed.items() if measured[gpu].board != part.board}
            without = replace(alone[part.gpu], spread=_spread(law, others, spread))
            rows.append(_calibrated(without, everything, part, tests[part.gpu]))
    sparse = sorted(p.gpu for p in measured.values() if p.table.height < FEW_KERNELS)
    fitted = replace(everything.fitted, sparse=sparse)
    return replace(everything, fitted=fitted, spread=spread), pl.concat(rows, how="diagonal_relaxed")


def _spread(law: str, missed: Mapping[str, Sequence[Block]], near: Spread | None = None) -> Spread | None:
    every = [block for of_gpu in missed.values() for block in of_gpu]
    return fit_spread(law, every, near) if every else None


def _hold_outs(parts: Sequence[Measured]) -> list[set[str]]:
    """Each measured GPU, however its kernels see it, and all GPUs of each class of which several were measured."""
    boards: dict[str, set[str]] = {}
    classes: dict[str, set[str]] = {}
    for part in parts:
        boards.setdefault(part.board, set()).add(part.gpu)
        classes.setdefault(part.machine.tensor_class, set()).add(part.gpu)
    measured = {part.gpu for part in parts if not part.rated}
    return [
        *(boards[board] for board in sorted(boards) if boards[board] & measured),
        *(c for c in classes.values() if len(c & measured) > 1),
    ]


def held_shapes(part: Measured) -> Measured:
    """A sample of the shapes that are never trained on."""
    test = part.shapes(test=True)
    return Measured(test.gpu, sample(test.table, TEST_ROWS))


def _calibrated(fitted: LawFit, launches: LawFit, part: Measured, held: Measured) -> pl.DataFrame:
    """Scores of a GPU left out on which a few training shapes of each framework were measured, one by one."""
    scored = []
    for framework, weights in calibrated(fitted, launches, part):
        tests = held.table.filter(pl.col("framework").eq_missing(pl.lit(framework)))
        # What the GPU runs as another law, as fp32 in TF32, calibrates that one.
        if not tests.is_empty() and (fitted.law, part.gpu) in weights.calibrated:
            scored.append(_modelled(fitted, launches, Measured(part.gpu, tests), weights))
    return pl.concat(scored) if scored else pl.DataFrame()


def _score(fitted: LawFit, launches: LawFit, part: Measured, others: Sequence[Measured]) -> pl.DataFrame:
    rows = _modelled(fitted, launches, part)
    pairs = [_source(_modelled(fitted, launches, other), other.machine, part.machine) for other in others]
    if not pairs:
        unpaired = {"source_ratio": pl.Float64, "kinship": pl.String, "peak_ratio_us": pl.Float64}
        return rows.with_columns(pl.lit(None, dtype=dtype).alias(name) for name, dtype in unpaired.items())
    # Several GPUs may have measured a kernel: each row is paired with one of them, in turn.
    key = ["shape", "framework", "dtype"]
    turn = pl.concat(pairs).with_columns(order=pl.col("shape") % 101 * (pl.col("source").rank("dense") + 3) % 101)
    one = turn.sort("order", "source").unique(key, keep="first", maintain_order=True).drop("order", "source")
    paired = rows.join(one, on=key, how="left", nulls_equal=True)
    return paired.with_columns(peak_ratio_us=pl.col("source_us") * pl.col("peak_ratio"))


def _modelled(fitted: LawFit, launches: LawFit, part: Measured, weights: Weights | None = None) -> pl.DataFrame:
    gpu, law, weights = part.machine, fitted.law, weights or fitted.weights
    rows = sizes(part.table)
    columns = rows.on(gpu)
    _, law_us = evaluate(rows, law, gpu, Weights({law: fitted.fitted}))
    _, model_us = evaluate(rows, law, gpu, weights)
    nameless = sizes(part.table.with_columns(framework=pl.lit(None, dtype=pl.String)))
    _, nameless_us = evaluate(nameless, law, gpu, weights)
    roofline = np.maximum(
        columns["work_flops"] / columns["tflops"] / 1e6, columns["work_bytes"] / gpu.gpu.bandwidth_gbps / 1e3
    )
    bound = bound_us(law, columns, gpu)
    launch_us = launches.launches.get(gpu.slug, 0.0)
    known = ("law", "framework", "dtype", "shape", "source", "versions_us")
    scored = part.table.select(*known, measured_us="latency_us").with_columns(
        gpu=pl.lit(gpu.slug),
        situation=pl.lit(situation(law, gpu, weights)),
        latency_us=pl.Series(kernel_us(part.table, launch_us)),
        model_us=pl.Series(np.maximum(model_us, bound)),
        nameless_us=pl.Series(np.maximum(nameless_us, bound)),
        law_us=pl.Series(np.maximum(law_us, bound)),
        roofline_us=pl.Series(roofline),
    )
    return scored.filter(pl.col("measured_us") > shortest_us(launch_us)).drop("source", "measured_us")


def _source(rows: pl.DataFrame, source: Machine, target: Machine) -> pl.DataFrame:
    dtypes = rows["dtype"].unique().to_list()
    ratio = {d: source.tflops(d) / target.tflops(d) for d in dtypes}
    return rows.select(
        "shape", "framework", "dtype", source_us="latency_us", source=pl.lit(source.slug),
        source_ratio=(pl.col("latency_us") / pl.col("model_us")).log(), kinship=pl.lit(relation(source, target)),
        peak_ratio=pl.col("dtype").replace_strict(ratio, default=None, return_dtype=pl.Float64).cast(pl.Float64),
    )  # fmt: skip


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Errors by law, situation and GPU: median and 90th percentile of |error| in percent, model and baselines.

    Kernels measured under a framework's name only; `by_stack` has those of attention under their stack's.
    """
    return _summary(rows.filter(~OF_A_STACK, pl.col("latency_us") > SHOWN_US), ["law"])


def by_stack(rows: pl.DataFrame) -> pl.DataFrame:
    """The same of attention whose kernels are known, by law and stack."""
    return _summary(rows.filter(STACK_KNOWN), ["law", "framework"])


def _summary(rows: pl.DataFrame, of: list[str]) -> pl.DataFrame:

    def error(column: str) -> pl.Expr:
        return (pl.col(column) / pl.col("latency_us") - 1).abs() * 100

    names = {"model": "model_us", "law": "law_us", "roofline": "roofline_us", "peak_ratio": "peak_ratio_us"}
    stats = [error(c).median().alias(f"{name}_median") for name, c in names.items()]
    stats += [error(c).quantile(0.9).alias(f"{name}_p90") for name, c in names.items()]
    bias = ((pl.col("model_us") / pl.col("latency_us")).log().median() * 100).alias("bias")
    by = [*of, "situation", "gpu"]
    return rows.group_by(by).agg(pl.len().alias("n"), *stats, bias).sort(by)
