"""Attention of a training step, forward and backward, of shapes and of GPUs that the fit did not see.

cuDNN in bf16, fp8 and mxfp8 on H200, GB200 and GB300, as NVIDIA/cudnn-frontend measures it. A model's shape (heads, key
heads, width and window) is left out of the fit on all GPUs at once; a GPU with all of its shapes.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import polars as pl

from predictors.arrays import Floats
from predictors.columns import build_law_inputs
from predictors.model import evaluate_law
from predictors.training.fit import LawFit, LawMeasurements, fit_law_and_corrections, load_measurements
from predictors.training.published import ATTENTION_TABLE
from predictors.weights_file import Weights
from tests.validation.study import CUDNN_FRONTEND, find_input, format_table

INPUTS = (CUDNN_FRONTEND,)
LAW = "sequence"
SHAPE = ("heads", "kv_heads", "head_dim", "window")
GPUS = ("h200-sxm", "gb200", "gb300")
HEADINGS = ("", "calls", "error, median", "P90", "signed median", "law alone, median", "P90")


def run() -> str:
    """Return tables of |error| in percent."""
    return "\n".join(("# Attention of training\n", "|error| in percent.\n", *list_sections()))


@cache
def load_parts() -> list[LawMeasurements]:
    """Load all measured attention over whole sequences."""
    return load_measurements([find_input(CUDNN_FRONTEND), ATTENTION_TABLE])[LAW]


@cache
def fit_all() -> LawFit:
    """Fit the law on all GPUs and shapes but those that are never trained on."""
    return fit_law_and_corrections(LAW, load_parts())


def list_sections() -> Iterator[str]:
    """Yield the headings and tables."""
    shapes = pl.concat(part.table.select(SHAPE) for part in list_tested(load_parts())).unique().sort(SHAPE)
    left_out = pl.concat(map(score_without_shape, shapes.iter_rows()))
    yield "## A model's shape left out\n"
    yield format_errors(left_out, ["dtype", "direction"])
    yield format_errors(left_out, ["shape"])
    yield "## A GPU left out\n"
    yield format_errors(pl.concat(map(score_without_gpu, GPUS)), ["gpu"])
    yield "Source: NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results.\n"


def list_tested(parts: Sequence[LawMeasurements]) -> list[LawMeasurements]:
    """Return cuDNN's calls on the tested GPUs."""
    own = [LawMeasurements(part.gpu, part.table.filter(framework="cudnn")) for part in parts if part.gpu in GPUS]
    return [part for part in own if not part.table.is_empty()]


def score_without_shape(shape: tuple[float, ...]) -> pl.DataFrame:
    """Score a shape by a fit that lacks it."""
    mine = pl.all_horizontal(pl.col(name) == value for name, value in zip(SHAPE, shape, strict=True))
    tested = [LawMeasurements(part.gpu, part.table.filter(mine)) for part in list_tested(load_parts())]
    others = [LawMeasurements(part.gpu, part.table.filter(~mine)) for part in load_parts()]
    return score(others, [part for part in tested if not part.table.is_empty()])


def score_without_gpu(gpu: str) -> pl.DataFrame:
    """Score a GPU by a fit that lacks it."""
    return score(
        [part for part in load_parts() if part.board != gpu],
        [part for part in list_tested(load_parts()) if part.gpu == gpu],
    )


def score(fitted: Sequence[LawMeasurements], tested: Sequence[LawMeasurements]) -> pl.DataFrame:
    """Fit the law to some measurements, and predict others: ``model_us``, and ``law_us`` without trees."""
    known = [part for part in fitted if not part.table.is_empty()]
    known = [part for part in known if not part.select_shapes(test=False).table.is_empty()]
    without = fit_law_and_corrections(LAW, known, fit_all(), {part.hardware.architecture for part in load_parts()})
    shape = pl.format("{} heads, {} for keys, of {}, window {}", *(pl.col(name).cast(pl.Int64) for name in SHAPE))
    return pl.concat(
        part.table.select("dtype", "direction", "latency_us", shape=shape, gpu=pl.lit(part.gpu)).with_columns(
            model_us=pl.Series(predict_us(part, without.weights)),
            law_us=pl.Series(predict_us(part, Weights({LAW: without.fitted}))),
        )
        for part in tested
    )


def predict_us(part: LawMeasurements, weights: Weights) -> Floats:
    """Predict the microseconds of measured calls."""
    return evaluate_law(build_law_inputs(part.table), LAW, part.hardware, weights)[1]


def format_errors(rows: pl.DataFrame, by: Sequence[str]) -> str:
    """Format a table of errors by some columns, and of all."""
    model, law = (100 * (pl.col(name) / pl.col("latency_us") - 1) for name in ("model_us", "law_us"))
    stats = {
        "model": model.abs().median(),
        "model_p90": model.abs().quantile(0.9),
        "signed": model.median(),
        "law": law.abs().median(),
        "law_p90": law.abs().quantile(0.9),
    }
    named = rows.with_columns(name=pl.concat_str(*by, separator=", "))
    groups = (named, named.with_columns(name=pl.lit("all")))
    table = pl.concat(group.group_by("name").agg(pl.len(), **stats).sort("name") for group in groups)
    return format_table(
        HEADINGS,
        ((name, str(count), *(f"{value:.1f}" for value in values)) for name, count, *values in table.iter_rows()),
    )
