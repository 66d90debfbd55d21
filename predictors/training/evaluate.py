"""Score the fits on data outside of their training: held-out shapes, GPUs and classes of matrix units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from sklearn.model_selection import LeaveOneGroupOut

from predictors.attention_stacks import ATTENTION_STACKS
from predictors.columns import build_law_inputs
from predictors.gaussian_process import ErrorSpread
from predictors.hardware import Hardware
from predictors.intervals import classify_situation
from predictors.model import evaluate_law
from predictors.roofline import compute_bound_us
from predictors.training.calibration import build_error_blocks, build_min_scored_us, calibrate_frameworks
from predictors.training.fit import LawFit, LawMeasurements, fit_law_and_corrections, sample_rows, subtract_launch_us
from predictors.training.fit_spread import ErrorBlock, fit_spread
from predictors.transfer import classify_kinship
from predictors.weights_file import Weights

MAX_TEST_ROWS = 1500
"""Rows of one framework on one GPU that are scored."""
MIN_KERNELS = 20
"""Of a GPU with fewer, the errors on its other kernels aren't known: its intervals are those of a GPU left out."""
HAS_KNOWN_STACK = pl.col("framework").is_in(ATTENTION_STACKS).fill_null(False)
IS_STACK_DUPLICATE = HAS_KNOWN_STACK & (pl.col("law") != "sequence")
"""Rows of engines that are there once more under whose kernels they are."""
MIN_SHOWN_US = 20.0
"""Shorter ones count for the intervals, not in the tables."""


def cross_validate(law: str, parts: Sequence[LawMeasurements]) -> tuple[LawFit, pl.DataFrame]:
    """Fits a law on all its GPUs, then without each GPU and without each class, and scores what was never trained on.

    Args:
        law: Name of the law.
        parts: Measurements: kernels of a GPU, its published rates, or both.

    Returns:
        The fit on all GPUs, and one row per scored kernel: ``law``, ``gpu``, ``situation``, ``framework``, ``shape``,
        ``latency_us`` (without launch), ``versions_us`` (each software version's, or null), ``model_us``,
        ``nameless_us`` (with the framework hidden), ``law_us``, ``roofline_us``, and from one other GPU that measured
        the same kernel ``source_ratio`` (log of its measured over modelled time), ``kinship``, ``peak_ratio_us``.
    """
    everything = fit_law_and_corrections(law, parts)
    measured = {p.gpu: p for p in parts if not p.is_published_rate}
    tests = {gpu: sample_test_shapes(p) for gpu, p in measured.items()}
    rows = [_score_with_source(everything, everything, test, []) for test in tests.values()]
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
    missed = {gpu: build_error_blocks(alone[gpu], everything, p) for gpu, p in measured.items() if gpu in alone}
    spread = _fit_spread_of_blocks(law, missed)
    for part in measured.values():
        if part.gpu in alone:
            others = {gpu: of_gpu for gpu, of_gpu in missed.items() if measured[gpu].board != part.board}
            without = replace(alone[part.gpu], spread=_fit_spread_of_blocks(law, others, spread))
            rows.append(_score_calibrated(without, everything, part, tests[part.gpu]))
    sparse = sorted(p.gpu for p in measured.values() if p.table.height < MIN_KERNELS)
    fitted = replace(everything.fitted, sparse=sparse)
    return replace(everything, fitted=fitted, spread=spread), pl.concat(rows, how="diagonal_relaxed")


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
    return LawMeasurements(test.gpu, sample_rows(test.table, MAX_TEST_ROWS))


def _score_calibrated(fitted: LawFit, launches: LawFit, part: LawMeasurements, held: LawMeasurements) -> pl.DataFrame:
    """Scores of a GPU left out on which a few training shapes of each framework were measured, one by one."""
    scored = []
    for framework, weights in calibrate_frameworks(fitted, launches, part):
        tests = held.table.filter(pl.col("framework").eq_missing(pl.lit(framework)))
        # A kernel that the GPU runs under another law (fp32 in TF32) calibrates that law.
        if not tests.is_empty() and (fitted.law, part.gpu) in weights.calibrated:
            scored.append(_score_kernels(fitted, launches, LawMeasurements(part.gpu, tests), weights))
    return pl.concat(scored) if scored else pl.DataFrame()


def _score_with_source(
    fitted: LawFit, launches: LawFit, part: LawMeasurements, others: Sequence[LawMeasurements]
) -> pl.DataFrame:
    rows = _score_kernels(fitted, launches, part)
    pairs = [
        _build_source_columns(_score_kernels(fitted, launches, other), other.hardware, part.hardware)
        for other in others
    ]
    if not pairs:
        unpaired = {"source_ratio": pl.Float64, "kinship": pl.String, "peak_ratio_us": pl.Float64}
        return rows.with_columns(pl.lit(None, dtype=dtype).alias(name) for name, dtype in unpaired.items())
    # If several GPUs measured a kernel, rows are paired with each of them in turn.
    key = ["shape", "framework", "dtype"]
    turn = pl.concat(pairs).with_columns(order=pl.col("shape") % 101 * (pl.col("source").rank("dense") + 3) % 101)
    one = turn.sort("order", "source").unique(key, keep="first", maintain_order=True).drop("order", "source")
    paired = rows.join(one, on=key, how="left", nulls_equal=True)
    return paired.with_columns(peak_ratio_us=pl.col("source_us") * pl.col("peak_ratio"))


def _score_kernels(
    fitted: LawFit, launches: LawFit, part: LawMeasurements, weights: Weights | None = None
) -> pl.DataFrame:
    gpu, law, weights = part.hardware, fitted.law, weights or fitted.weights
    rows = build_law_inputs(part.table)
    columns = rows.to_columns(gpu)
    _, law_us = evaluate_law(rows, law, gpu, Weights({law: fitted.fitted}))
    _, model_us = evaluate_law(rows, law, gpu, weights)
    nameless = build_law_inputs(part.table.with_columns(framework=pl.lit(None, dtype=pl.String)))
    _, nameless_us = evaluate_law(nameless, law, gpu, weights)
    roofline = np.maximum(
        columns["work_flops"] / columns["tflops"] / 1e6, columns["work_bytes"] / gpu.gpu.bandwidth_gbps / 1e3
    )
    bound = compute_bound_us(law, columns, gpu)
    launch_us = launches.launch_us.get(gpu.slug, 0.0)
    known = ("law", "framework", "dtype", "shape", "source", "versions_us")
    scored = part.table.select(*known, measured_us="latency_us").with_columns(
        gpu=pl.lit(gpu.slug),
        situation=pl.lit(classify_situation(law, gpu, weights)),
        latency_us=pl.Series(subtract_launch_us(part.table, launch_us)),
        model_us=pl.Series(np.maximum(model_us, bound)),
        nameless_us=pl.Series(np.maximum(nameless_us, bound)),
        law_us=pl.Series(np.maximum(law_us, bound)),
        roofline_us=pl.Series(roofline),
    )
    return scored.filter(pl.col("measured_us") > build_min_scored_us(launch_us)).drop("source", "measured_us")


def _build_source_columns(rows: pl.DataFrame, source: Hardware, target: Hardware) -> pl.DataFrame:
    dtypes = rows["dtype"].unique().to_list()
    ratio = {d: source.get_tflops(d) / target.get_tflops(d) for d in dtypes}
    return rows.select(
        "shape", "framework", "dtype", source_us="latency_us", source=pl.lit(source.slug),
        source_ratio=(pl.col("latency_us") / pl.col("model_us")).log(), kinship=pl.lit(classify_kinship(source,
        target)),
        peak_ratio=pl.col("dtype").replace_strict(ratio, default=None, return_dtype=pl.Float64).cast(pl.Float64),
    )  # fmt: skip


def summarise_errors(rows: pl.DataFrame) -> pl.DataFrame:
    """Errors by law, situation and GPU: median and 90th percentile of |error| in percent, model and baselines.

    Attention kernels are counted under their framework only; ``summarise_by_stack`` counts them by stack.
    """
    return _summarise(rows.filter(~IS_STACK_DUPLICATE, pl.col("latency_us") > MIN_SHOWN_US), ["law"])


def summarise_by_stack(rows: pl.DataFrame) -> pl.DataFrame:
    """The same of attention whose kernels are known, by law and stack."""
    return _summarise(rows.filter(HAS_KNOWN_STACK), ["law", "framework"])


def _summarise(rows: pl.DataFrame, of: list[str]) -> pl.DataFrame:

    def error(column: str) -> pl.Expr:
        return (pl.col(column) / pl.col("latency_us") - 1).abs() * 100

    names = {"model": "model_us", "law": "law_us", "roofline": "roofline_us", "peak_ratio": "peak_ratio_us"}
    stats = [error(c).median().alias(f"{name}_median") for name, c in names.items()]
    stats += [error(c).quantile(0.9).alias(f"{name}_p90") for name, c in names.items()]
    bias = ((pl.col("model_us") / pl.col("latency_us")).log().median() * 100).alias("bias")
    by = [*of, "situation", "gpu"]
    return rows.group_by(by).agg(pl.len().alias("n"), *stats, bias).sort(by)
