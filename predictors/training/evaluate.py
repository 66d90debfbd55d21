"""Score the fits on data outside of their training: held-out shapes, GPUs and classes of matrix units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from sklearn.model_selection import LeaveOneGroupOut

from predictors.arrays import Floats
from predictors.columns import LawInputs, build_law_inputs
from predictors.fitted_kernels import find_fitted
from predictors.gaussian_process import ErrorSpread
from predictors.hardware import Hardware
from predictors.kernel_identity import ATTENTION_LAWS, BENCHMARK_LOOP, IDENTITY_COLUMNS, SERVING_FRAMEWORKS
from predictors.model import compute_software_spread, evaluate_law
from predictors.result import (
    BETWEEN,
    ENGINE,
    LIBRARY,
    NEW_LIBRARY,
    NEW_RELEASE,
    NEW_SOFTWARE,
    NOTHING,
    TOLD_ALL,
    classify_situation,
)
from predictors.training.calibration import build_error_blocks, build_min_scored_us, calibrate_frameworks
from predictors.training.fit import LawFit, LawMeasurements, fit_law_and_corrections, sample_rows, subtract_launch_us
from predictors.training.fit_spread import ErrorBlock, fit_spread
from predictors.training.views import VIEWS, build_shown_inputs, can_show, get_spread_column, get_time_column, show
from predictors.transfer import classify_kinship
from predictors.weights_file import Weights
from predictors.work import compute_bound_us

MAX_TEST_ROWS, MAX_UNNAMED_TEST_ROWS = 500, 1500
"""Rows of one library, engine and release on one GPU that are scored, and of kernels without a name."""
MIN_KERNELS = 20
"""Of a GPU with fewer, the errors on its other kernels aren't known: its intervals are those of a GPU left out."""
_NO_RELEASE = pl.lit(None, pl.Float64)
MIN_SHOWN_US = 20.0
"""Shorter ones count for the intervals, not in the tables."""


_CELL = ("gpu", "engine", "release")
_KERNEL = ("shape", *IDENTITY_COLUMNS, "dtype")
_ATTENDS = pl.col("law").is_in(ATTENTION_LAWS)
_TOLD_IN_TRACES = {
    LIBRARY: pl.col("library_us"),
    ENGINE: pl.when(_ATTENDS).then("engine_us"),
    NOTHING: pl.when(~_ATTENDS).then("nothing_us"),
}
TOLD_IN_TRACES_US = pl.coalesce(*_TOLD_IN_TRACES.values(), "model_us")
"""Predicted times with what a trace tells: names of kernels, no release. The names tell the library of attention, and
of products and experts in half precision; of those no kernel tells its engine."""


def cross_validate(law: str, parts: Sequence[LawMeasurements]) -> tuple[LawFit, pl.DataFrame]:
    """Fits a law on all its GPUs, then without each GPU and without each class, and scores what was never trained on.

    Args:
        law: Name of the law.
        parts: Measurements: kernels of a GPU, its published rates, or both.

    Returns:
        The fit on all GPUs, and one row per scored kernel: ``law``, ``gpu``, ``situation``, ``framework``, ``engine``,
        ``release``, ``shape``, ``latency_us`` (without launch), ``model_us``, those of ``views.get_time_column`` (with
        as much of the identity as these views show; null where they show no less), ``law_us``,
        ``roofline_us``, and from one other GPU that measured the same kernel ``source_ratio`` (log of its measured over
        modelled time, with what a trace tells), ``kinship``, ``peak_ratio_us``; in the base ``fitted``, the
        measurements of its engine's release on the GPU.
    """
    everything = fit_law_and_corrections(law, parts)
    measured = {p.gpu: p for p in parts if not p.is_published_rate}
    tests = {gpu: sample_test_shapes(p) for gpu, p in measured.items()}
    base = pl.concat([_score_with_source(everything, everything, test, []) for test in tests.values()])
    rows = [base.join(count_fitted(measured.values()), on=_CELL, how="left", nulls_equal=True)]
    alone: dict[str, LawFit] = {}
    for held in _list_hold_outs(parts):
        left = [p for p in parts if p.gpu not in held]
        if all(p.is_published_rate for p in left):
            continue
        seen = held & measured.keys()
        without = fit_law_and_corrections(law, left, everything, {measured[gpu].hardware.architecture for gpu in seen})
        pairs = [test for gpu, test in tests.items() if gpu not in held]
        rows += [_score_with_source(without, everything, tests[gpu], pairs) for gpu in sorted(seen)]
        if len({measured[gpu].board for gpu in seen}) == 1:
            alone |= dict.fromkeys(seen, without)
    rows += _score_new_releases(law, parts, everything, tests)
    missed = {gpu: build_error_blocks(alone[gpu], everything, p) for gpu, p in measured.items() if gpu in alone}
    spread = _fit_spread_of_blocks(law, missed)
    for part in measured.values():
        if part.gpu in alone:
            others = {gpu: of_gpu for gpu, of_gpu in missed.items() if measured[gpu].board != part.board}
            without = replace(alone[part.gpu], spread=_fit_spread_of_blocks(law, others, spread))
            rows.append(score_calibrated(without, everything, part, tests[part.gpu]))
    sparse = sorted(p.gpu for p in measured.values() if p.table.height < MIN_KERNELS)
    fitted = replace(everything.fitted, sparse=sparse)
    return replace(everything, fitted=fitted, spread=spread), pl.concat(rows, how="diagonal_relaxed")


def count_fitted(parts: Iterable[LawMeasurements]) -> pl.DataFrame:
    """Count the measurements of each GPU's engines and releases, as ``fitted``."""
    counted = [
        part.table.group_by("engine", "release").agg(fitted=pl.len()).with_columns(gpu=pl.lit(part.gpu))
        for part in parts
    ]
    return pl.concat(counted)


def _score_new_releases(
    law: str, parts: Sequence[LawMeasurements], near: LawFit, tests: Mapping[str, LawMeasurements]
) -> list[pl.DataFrame]:
    """Score kernels of each release of an engine by a fit that lacks it, where the engine has others."""
    releases = pl.concat([part.table.select("engine", "release") for part in parts]).drop_nulls().unique()
    several = releases.filter(pl.len().over("engine") > 1).sort("engine", "release")
    return [
        scored
        for engine, release in several.iter_rows()
        for scored in _score_release(law, parts, near, tests, engine, release)
    ]


def _score_release(
    law: str,
    parts: Sequence[LawMeasurements],
    near: LawFit,
    tests: Mapping[str, LawMeasurements],
    engine: str,
    release: float,
) -> Iterator[pl.DataFrame]:
    is_new = ((pl.col("engine") == engine) & (pl.col("release") == release)).fill_null(value=False)
    older = [LawMeasurements(part.gpu, part.table.filter(~is_new)) for part in parts]
    older = [part for part in older if not part.table.is_empty()]
    older = [part for part in older if not part.select_shapes(test=False).table.is_empty()]
    changed = {part.hardware.architecture for part in parts if part.table.select(is_new.any()).item()}
    fitted = fit_law_and_corrections(law, older, near, changed)
    for gpu in tests.keys() & {part.gpu for part in older}:
        rows = tests[gpu].table.filter(is_new)
        if not rows.is_empty():
            yield _score_with_source(fitted, near, LawMeasurements(gpu, rows), [])


def _fit_spread_of_blocks(
    law: str, missed: Mapping[str, Sequence[ErrorBlock]], near: ErrorSpread | None = None
) -> ErrorSpread | None:
    every = [block for of_gpu in missed.values() for block in of_gpu]
    return fit_spread(law, every, near) if every else None


def _list_hold_outs(parts: Sequence[LawMeasurements]) -> list[set[str]]:
    """Each measured GPU, however its kernels see it, and all GPUs of each class of which several were measured."""
    measured = {part.gpu for part in parts if not part.is_published_rate}
    classes = [part.hardware.tensor_class for part in parts]
    boards = _leave_one_group_out(parts, [part.board for part in parts])
    whole_classes = _leave_one_group_out(parts, [classes.index(one) for one in classes])
    return [
        *(board for board in boards if board & measured),
        *(gpus for gpus in whole_classes if len(gpus & measured) > 1),
    ]


def _leave_one_group_out(parts: Sequence[LawMeasurements], groups: Sequence[object]) -> list[set[str]]:
    """Return the GPUs of each group in the order of the groups; of a single group, without which nothing is left, none.

    Args:
        parts: Measurements.
        groups: Group of each.
    """
    splits = LeaveOneGroupOut().split(parts, groups=groups) if len(set(groups)) > 1 else ()
    return [{parts[at].gpu for at in left_out} for _, left_out in splits]


def sample_test_shapes(part: LawMeasurements) -> LawMeasurements:
    """A sample of the shapes that are never trained on."""
    test = part.select_shapes(test=True)
    return LawMeasurements(test.gpu, sample_rows(test.table, MAX_TEST_ROWS, MAX_UNNAMED_TEST_ROWS))


def score_calibrated(fitted: LawFit, launches: LawFit, part: LawMeasurements, held: LawMeasurements) -> pl.DataFrame:
    """Scores of a GPU left out on which a few training shapes of each framework were measured, one by one."""
    scored = []
    for framework, weights in calibrate_frameworks(fitted, launches, part):
        tests = held.table.filter(pl.col("framework").eq_missing(pl.lit(framework))).with_columns(release=_NO_RELEASE)
        # A kernel that the GPU runs under another law (fp32 in TF32) calibrates that law.
        if not tests.is_empty() and (fitted.law, part.gpu) in weights.calibrated:
            scored.append(score_kernels(fitted, launches, LawMeasurements(part.gpu, tests), weights))
    return pl.concat(scored) if scored else pl.DataFrame()


def _score_with_source(
    fitted: LawFit, launches: LawFit, part: LawMeasurements, others: Sequence[LawMeasurements]
) -> pl.DataFrame:
    rows = score_kernels(fitted, launches, part)
    sources = [
        _build_source_columns(score_kernels(fitted, launches, other), other.hardware, part.hardware)
        for other in _choose_sources(part, others, launches)
    ]
    if not sources:
        unpaired = {"source_ratio": pl.Float64, "kinship": pl.String, "peak_ratio_us": pl.Float64}
        return rows.with_columns(pl.lit(None, dtype=dtype).alias(name) for name, dtype in unpaired.items())
    paired = rows.join(pl.concat(sources).drop("source"), on=_KERNEL, how="left", nulls_equal=True)
    return paired.with_columns(peak_ratio_us=pl.col("source_us") * pl.col("peak_ratio"))


def _choose_sources(
    part: LawMeasurements, others: Sequence[LawMeasurements], launches: LawFit
) -> list[LawMeasurements]:
    """Return of each other GPU the kernels that those of a part are paired with: each with one, of the GPUs in turn."""
    if not others:
        return []
    scored = [
        other.table.with_row_index("row")
        .filter(pl.col("latency_us") > build_min_scored_us(launches.launch_us.get(other.gpu, 0.0)))
        .select("row", *_KERNEL, other=pl.lit(other.gpu))
        for other in others
    ]
    turn = pl.concat(scored).with_columns(order=pl.col("shape") % 101 * (pl.col("other").rank("dense") + 3) % 101)
    mine = part.table.select(_KERNEL).unique()
    chosen = turn.join(mine, on=_KERNEL, how="semi", nulls_equal=True).sort("order", "other", "row")
    chosen = chosen.unique(_KERNEL, keep="first", maintain_order=True)
    found = [
        LawMeasurements(other.gpu, other.table[chosen.filter(pl.col("other") == other.gpu)["row"].sort()])
        for other in others
    ]
    return [other for other in found if not other.table.is_empty()]


def score_kernels(
    fitted: LawFit, launches: LawFit, part: LawMeasurements, weights: Weights | None = None
) -> pl.DataFrame:
    """Score measured kernels of one GPU by a fit: the columns of :func:`cross_validate` but for those of a source."""
    gpu, law, weights = part.hardware, fitted.law, weights or fitted.weights
    rows = build_law_inputs(part.table)
    columns = rows.to_columns(gpu)
    _, law_us = evaluate_law(rows, law, gpu, Weights({law: fitted.fitted}))
    _, model_us = evaluate_law(rows, law, gpu, weights)
    roofline = np.maximum(
        columns["work_flops"] / columns["tflops"] / 1e6, columns["work_bytes"] / gpu.gpu.bandwidth_gbps / 1e3
    )
    bound = compute_bound_us(law, columns, gpu)
    launch_us = launches.launch_us.get(gpu.slug, 0.0)
    situation = _classify_rows(rows, law, gpu, weights)
    known = ("law", *IDENTITY_COLUMNS, "dtype", "shape", "source")
    scored = part.table.select(*known, measured_us="latency_us").with_columns(
        gpu=pl.lit(gpu.slug),
        situation=situation,
        latency_us=pl.Series(subtract_launch_us(part.table, launch_us)),
        model_us=pl.Series(np.maximum(model_us, bound)),
        model_spread=_compute_spread(rows, law, gpu, weights, situation),
        **{
            name: values
            for view in VIEWS
            for name, values in _predict_view(part.table, view, law, gpu, weights, bound, situation).items()
        },
        law_us=pl.Series(np.maximum(law_us, bound)),
        roofline_us=pl.Series(roofline),
    )
    return scored.filter(pl.col("measured_us") > build_min_scored_us(launch_us)).drop("source", "measured_us")


_FITTED_GPU = ("base", *NEW_SOFTWARE)
"""Situations of kernels on a GPU that the fit has."""


def _classify_rows(rows: LawInputs, law: str, gpu: Hardware, weights: Weights) -> pl.Series:
    """The situation of each row: in the base, those of a release or library that wasn't fitted there are apart."""
    where, of_law, x = classify_situation(law, gpu, weights), weights.get_law(law), rows.numbers
    if where != "base":
        return pl.Series("situation", np.full(x["release"].size, where), dtype=pl.String)
    told = find_fitted(law, x, rows.frameworks, of_law.find_kernels(gpu), of_law.find_alike_kernels(gpu))
    names = np.select(
        [told.exactly | (x["release"] < 0), told.between, told.known], [where, BETWEEN, NEW_RELEASE], NEW_LIBRARY
    )
    return pl.Series("situation", names, dtype=pl.String)


def _predict_view(
    table: pl.DataFrame, view: str, law: str, gpu: Hardware, weights: Weights, bound_us: Floats, situation: pl.Series
) -> dict[str, pl.Series]:
    """Return times of rows of which a view shows less than all, and their software's spread; null elsewhere."""
    shows = table.select(can_show(view))[:, 0].to_numpy()
    time_us, spread = np.full((2, table.height), np.nan)
    if shows.any():
        some = table.filter(shows)
        inputs = build_shown_inputs(some, show(some, view))
        time_us[shows] = np.maximum(evaluate_law(inputs, law, gpu, weights)[1], bound_us[shows])
        spread[shows] = _compute_spread(inputs, law, gpu, weights, situation.filter(pl.Series(shows)))
    columns = {get_time_column(view): time_us, get_spread_column(view): spread}
    return {name: pl.Series(name, values, nan_to_null=True) for name, values in columns.items()}


def _compute_spread(rows: LawInputs, law: str, gpu: Hardware, weights: Weights, situation: pl.Series) -> pl.Series:
    """The spread of the software that rows may be of; 0 on GPUs that a fit lacks, whose widths don't ask for it."""
    if not situation.is_in(_FITTED_GPU).any():
        return pl.Series("model_spread", np.zeros(len(situation)))
    return pl.Series("model_spread", compute_software_spread(rows, law, gpu, weights))


def _build_source_columns(rows: pl.DataFrame, source: Hardware, target: Hardware) -> pl.DataFrame:
    dtypes = rows["dtype"].unique().to_list()
    ratio = {d: source.get_tflops(d) / target.get_tflops(d) for d in dtypes}
    return rows.select(
        "shape", *IDENTITY_COLUMNS, "dtype", source_us="latency_us", source=pl.lit(source.slug),
        source_ratio=(pl.col("latency_us") / TOLD_IN_TRACES_US).log(), kinship=pl.lit(classify_kinship(source,
        target)),
        peak_ratio=pl.col("dtype").replace_strict(ratio, default=None, return_dtype=pl.Float64).cast(pl.Float64),
    )  # fmt: skip


def tell_as_traces(rows: pl.DataFrame) -> pl.DataFrame:
    """Return scored rows whose ``model_us`` is predicted with what a trace tells, and as ``told`` what that is."""
    levels = [pl.when(time_us.is_not_null()).then(pl.lit(level)) for level, time_us in _TOLD_IN_TRACES.items()]
    return rows.with_columns(model_us=TOLD_IN_TRACES_US, told=pl.coalesce(*levels, pl.lit(TOLD_ALL)))


def summarise_errors(rows: pl.DataFrame) -> pl.DataFrame:
    """Errors by law, situation and GPU: median and 90th percentile of |error| in percent, model and baselines."""
    return _summarise(
        rows.filter(pl.col("latency_us") > MIN_SHOWN_US, ~pl.col("situation").is_in(NEW_SOFTWARE)), ["law"]
    )


def summarise_by_library(rows: pl.DataFrame) -> pl.DataFrame:
    """The same of kernels of known libraries, by law and library."""
    libraries = pl.col("framework").is_in(SERVING_FRAMEWORKS).not_()
    return _summarise(rows.filter(libraries, pl.col("framework") != BENCHMARK_LOOP), ["law", "framework"])


def summarise_views(rows: pl.DataFrame) -> pl.DataFrame:
    """Errors by law and by what is told of the software, in the base and on new releases: mean over GPUs, in percent.

    Returns:
        One row per law, ``situation`` and ``view`` ('release' where all is told): ``median``, ``p90``, ``gpus``.
    """
    served = rows.filter(
        pl.col("engine").is_not_null(),
        pl.col("latency_us") > MIN_SHOWN_US,
        pl.col("situation").is_in(["base", NEW_RELEASE]),
    )
    predicted = {TOLD_ALL: "model_us"} | {view: get_time_column(view) for view in VIEWS}
    long = served.unpivot(
        list(predicted.values()), index=["law", "situation", "gpu", "latency_us"], variable_name="view", value_name="us"
    ).drop_nulls("us")
    error = (pl.col("us") / pl.col("latency_us") - 1).abs() * 100
    names = {column: view for view, column in predicted.items()}
    by_gpu = long.group_by("law", "situation", "view", "gpu").agg(median=error.median(), p90=error.quantile(0.9))
    means = by_gpu.group_by("law", "situation", "view").agg(pl.col("median", "p90").mean(), gpus=pl.len())
    return means.with_columns(pl.col("view").replace(names)).sort("law", "situation", "view")


def _summarise(rows: pl.DataFrame, of: list[str]) -> pl.DataFrame:

    def error(column: str) -> pl.Expr:
        return (pl.col(column) / pl.col("latency_us") - 1).abs() * 100

    names = {"model": "model_us", "law": "law_us", "roofline": "roofline_us", "peak_ratio": "peak_ratio_us"}
    stats = [error(c).median().alias(f"{name}_median") for name, c in names.items()]
    stats += [error(c).quantile(0.9).alias(f"{name}_p90") for name, c in names.items()]
    bias = ((pl.col("model_us") / pl.col("latency_us")).log().median() * 100).alias("bias")
    by = [*of, "situation", "gpu"]
    return rows.group_by(by).agg(pl.len().alias("n"), *stats, bias).sort(by)
