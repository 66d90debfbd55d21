"""Errors on what was not trained on: shapes held out, GPUs held out, classes of GPUs held out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from predictors.columns import law_columns
from predictors.fitted import Weights
from predictors.intervals import SITUATIONS, situation
from predictors.machine import Machine
from predictors.model import evaluate
from predictors.roofline import with_bound
from predictors.training.fit import LawFit, Measured, fit, kernel_us, sample
from predictors.transfer import relation

TEST_ROWS = 1500
"""Rows of one framework on one GPU that are scored."""
LEAST_SCORED = 5
"""A GPU with fewer scored kernels of a law says nothing about its intervals."""
SHORTEST_US = {"graph": 20.0, "eager": 200.0}
"""Shorter kernels are left out of scores; eager times have 10 to 40 us of launch in them."""


def cross_validate(law: str, parts: Sequence[Measured], by_class: bool = False) -> tuple[LawFit, pl.DataFrame]:
    """Fits a law on all its GPUs, then without each one, and scores the shapes that were never trained on.

    Args:
        law: its name.
        parts: measurements, one element per GPU.
        by_class: leave out the GPU's whole tensor class with it.

    Returns:
        The fit on all GPUs, and one row per scored kernel: `law`, `gpu`, `situation`, `framework`, `shape`,
        `latency_us` (without launch), `model_us`, `law_us`, `roofline_us`, and of one other GPU that has measured
        the same kernel `source_ratio` (log of its measured over modelled time), `kinship`, `peak_ratio_us`.
    """
    everything = fit(law, parts)
    tests = [held_shapes(p) for p in parts]
    rows = [_score(everything, everything, p, []) for p in tests]
    for i, held in enumerate(tests):
        left = [p for j, p in enumerate(parts) if j != i and not (by_class and _same_class(p, parts[i]))]
        if left:
            others = [t for t in tests if any(t.gpu == p.gpu for p in left)]
            rows.append(_score(fit(law, left, everything, held.machine.architecture), everything, held, others))
    return everything, pl.concat(rows, how="diagonal")


def held_shapes(part: Measured) -> Measured:
    """A sample of the shapes that are never trained on."""
    test = part.shapes(test=True)
    return Measured(test.gpu, sample(test.table, TEST_ROWS))


def _same_class(a: Measured, b: Measured) -> bool:
    return a.machine.tensor_class == b.machine.tensor_class


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


def _modelled(fitted: LawFit, launches: LawFit, part: Measured) -> pl.DataFrame:
    gpu, law = part.machine, fitted.law
    columns = law_columns(part.table, gpu)
    _, law_us = evaluate(part.table, law, gpu, Weights({law: fitted.fitted}))
    _, model_us = evaluate(part.table, law, gpu, fitted.weights)
    roofline = np.maximum(
        columns["work_flops"] / columns["tflops"] / 1e6, columns["work_bytes"] / gpu.bandwidth_gbps / 1e3
    )
    bound = with_bound(part.table, gpu)["bound_us"].to_numpy()
    rows = part.table.select("law", "framework", "dtype", "shape", "source", measured_us="latency_us").with_columns(
        gpu=pl.lit(gpu.slug),
        situation=pl.lit(situation(law, gpu, fitted.weights)),
        latency_us=pl.Series(kernel_us(part.table, launches.launches.get(gpu.slug, 0.0))),
        model_us=pl.Series(np.maximum(model_us, bound)),
        law_us=pl.Series(np.maximum(law_us, bound)),
        roofline_us=pl.Series(roofline),
    )
    shortest = pl.col("source").replace_strict(SHORTEST_US, return_dtype=pl.Float64)
    return rows.filter(pl.col("measured_us") > shortest).drop("source", "measured_us")


def _source(rows: pl.DataFrame, source: Machine, target: Machine) -> pl.DataFrame:
    dtypes = rows["dtype"].unique().to_list()
    ratio = {d: source.tflops(d) / target.tflops(d) for d in dtypes}
    return rows.select(
        "shape", "framework", "dtype", source_us="latency_us", source=pl.lit(source.slug),
        source_ratio=(pl.col("latency_us") / pl.col("model_us")).log(), kinship=pl.lit(relation(source, target)),
        peak_ratio=pl.col("dtype").replace_strict(ratio, default=None, return_dtype=pl.Float64).cast(pl.Float64),
    )  # fmt: skip


def summarise(rows: pl.DataFrame) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Interval widths and transfer exponents from scored rows.

    Returns:
        law -> situation -> half-width of a 90 % interval, as a logarithm: wide enough for 90 % of the kernels of
        all held-out GPUs, each counting the same, and for 80 % of each single one; and law -> kinship -> exponent.
    """
    errors = rows.with_columns(
        error=(pl.col("model_us") / pl.col("latency_us")).log().abs(),
        residual=(pl.col("latency_us") / pl.col("model_us")).log(),
    )
    per_gpu = (
        errors.group_by("law", "situation", "gpu")
        .agg(q80=pl.col("error").quantile(0.8), q90=pl.col("error").quantile(0.9), n=pl.len())
        .filter(pl.col("n") >= LEAST_SCORED)
    )
    width = pl.max_horizontal(pl.col("q80").max(), pl.col("q90").mean())
    widths = per_gpu.group_by("law", "situation").agg(width=width)
    intervals: dict[str, dict[str, float]] = {}
    for law, where, width in widths.select("law", "situation", "width").sort("law").iter_rows():
        intervals.setdefault(law, {})[where] = width
    paired = errors.filter(pl.col("source_ratio").is_not_null(), pl.col("situation") != "base")
    x, y = pl.col("source_ratio").clip(-1, 1), pl.col("residual").clip(-1, 1)
    slopes = paired.group_by("law", "kinship").agg(slope=(x * y).sum() / ((x * x).sum() + 1e-9), n=pl.len())
    transfer: dict[str, dict[str, float]] = {}
    enough = slopes.filter(pl.col("n") > 200).sort("law").select("law", "kinship", "slope")
    for law, kinship, slope in enough.iter_rows():
        transfer.setdefault(law, {})[kinship] = float(np.clip(slope, 0.0, 1.0))
    usual = {s: float(np.median([w[s] for w in intervals.values() if s in w] or [0.0])) for s in SITUATIONS}
    return {law: _filled(known, usual) for law, known in intervals.items()}, transfer


def _filled(known: dict[str, float], usual: dict[str, float]) -> dict[str, float]:
    """Widths of all situations, never narrowing with distance.

    What wasn't seen is between its neighbours, or as wide as other laws usually are there.
    """
    widths: dict[str, float] = {}
    last = 0.0
    for i, name in enumerate(SITUATIONS):
        farther = [known[s] for s in SITUATIONS[i + 1 :] if s in known]
        between = (last * farther[0]) ** 0.5 if farther and last else usual[name]
        last = max(last, known.get(name, between))
        widths[name] = last
    return widths


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Errors by law, situation and GPU: median and 90th percentile of |error| in percent, model and baselines."""

    def error(column: str) -> pl.Expr:
        return (pl.col(column) / pl.col("latency_us") - 1).abs() * 100

    names = {"model": "model_us", "law": "law_us", "roofline": "roofline_us", "peak_ratio": "peak_ratio_us"}
    stats = [error(c).median().alias(f"{name}_median") for name, c in names.items()]
    stats += [error(c).quantile(0.9).alias(f"{name}_p90") for name, c in names.items()]
    bias = ((pl.col("model_us") / pl.col("latency_us")).log().median() * 100).alias("bias")
    by = ["law", "situation", "gpu"]
    return rows.group_by(by).agg(pl.len().alias("n"), *stats, bias).sort(by)
