"""Models that timm's tables hold, drawn at random, predicted by name against the throughputs published there.

Each table is drawn from by itself, with one seed; models that the docs' other study rebuilds are left out, and so are
those that run at another size of images than the model's own. A row is what a command says: ``tracekit predict
timm:MODEL --gpu GPU --autocast fp16 --batch N``, with ``--channels-last`` and ``--train`` where the table has them, and
``--attention eager`` of tables before PyTorch 2, which had no fused attention.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import polars as pl

import tracekit
from tests.validation.published_jobs.vision import MODELS
from tests.validation.study import TIMM_RESULTS, MissingInputError, find_input, format_table
from tracekit.errors import CaptureError
from tracekit.messages.models import ATTENTION_NOT_CALLED
from tracekit.trace import Trace

INPUTS = (TIMM_RESULTS,)
SEED = 61


class Table(NamedTuple):
    """One of timm's tables.

    Attributes:
        file: Its name, between 'benchmark-' and '.csv'.
        gpu: Its GPU.
        sample: How many models are drawn.
    """

    file: str
    gpu: str
    sample: int

    @property
    def trains(self) -> bool:
        """Whether its steps have a backward pass."""
        return self.file.startswith("train")

    @property
    def is_channels_last(self) -> bool:
        """Whether its images lie pixel after pixel."""
        return "nhwc" in self.file


TABLES = (
    Table("infer-amp-nhwc-pt240-cu124-rtx3090", "rtx-3090", 12),
    Table("infer-amp-nhwc-pt240-cu124-rtx4090", "rtx-4090", 12),
    Table("infer-amp-nchw-pt291-cu128-4090", "rtx-4090", 12),
    Table("infer-amp-nchw-pt291-cu130-5090", "rtx-5090", 12),
    Table("infer-amp-nchw-pt291-cu130-pro6000maxq", "rtx-pro-6000-max-q", 12),
    Table("train-amp-nhwc-pt112-cu113-rtx3090", "rtx-3090", 12),
)


class Outcome(NamedTuple):
    """A prediction beside a published step, in ms."""

    table: Table
    model: str
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def error_pct(self) -> float:
        """Return the error of the step's time."""
        return 100 * (self.predicted / self.measured - 1)


def run() -> str:
    """Return the errors by table, and a row for each model."""
    if find_spec("timm") is None:
        raise MissingInputError("install timm and torchvision")
    folder = find_input(TIMM_RESULTS)
    outcomes = [outcome for table in TABLES for outcome in predict_table(folder, table)]
    rows = (
        (one.table.file, one.model, f"{one.measured:.4g}", f"{one.predicted:.4g} ({one.low:.4g}–{one.high:.4g})",
         f"{one.error_pct:+.0f} %")
        for one in outcomes
    )  # fmt: skip
    headings = ("table", "models", "absolute error, median", "bias, median", "P90", "in interval", "width, median")
    return "\n".join(
        (
            "# Random models of timm's tables\n",
            format_table(headings, map(summarize, group_outcomes(outcomes))),
            format_table(("table", "model", "measured, ms", "predicted (90 % interval)", "error"), rows),
            "Source: github.com/huggingface/pytorch-image-models at aa4b5850, results/.\n",
        )
    )


def draw_models(folder: Path, table: Table) -> pl.DataFrame:
    """Draw models of a table: their name, batch, and published milliseconds of a step."""
    import timm

    kind = "train" if table.trains else "infer"
    published = pl.read_csv(folder / f"benchmark-{table.file}.csv", infer_schema_length=None).select(
        "model",
        batch=pl.col(f"{kind}_batch_size").cast(int),
        pixels=pl.col(f"{kind}_img_size"),
        step_ms=1e3 * pl.col(f"{kind}_batch_size") / pl.col(f"{kind}_samples_per_sec"),
    )
    base = pl.col("model").str.split(".").list.first()
    configs = {name: timm.get_pretrained_cfg(name) for name in timm.list_models()}
    sizes = {name: config.input_size[-1] for name, config in configs.items() if config}
    known = published.with_columns(base.alias("model")).filter(
        pl.col("model").is_in(list(sizes)) & ~pl.col("model").is_in(list(MODELS)) & pl.col("step_ms").is_finite()
    )
    known = known.filter(pl.col("pixels") == pl.col("model").replace_strict(sizes)).unique("model").sort("model")
    return known.sample(table.sample, seed=SEED)


def predict_table(folder: Path, table: Table) -> Iterator[Outcome]:
    """Yield the outcome of each model drawn that can be captured."""
    for model, batch, _, measured in draw_models(folder, table).iter_rows():
        try:
            program = capture_model(model, batch, table.trains, table.is_channels_last, "-pt1" in table.file)
        except CaptureError as error:
            print(f"  {model}: {error}")
            continue
        step = tracekit.predict(program, gpu=table.gpu)[table.gpu]
        yield Outcome(table, model, measured, step.step.step_time_us / 1e3, step.low_us / 1e3, step.high_us / 1e3)


@lru_cache(16)  # tables of one release have many models in common
def capture_model(model: str, batch: int, trains: bool, is_channels_last: bool, is_eager: bool) -> Trace:
    """Capture a model's step as its table ran it.

    Raises:
        CaptureError: It can't be captured.
    """

    def capture(attention: str | None) -> Trace:
        return tracekit.capture(
            f"timm:{model}",
            training=trains,
            autocast="fp16",
            channels_last=is_channels_last,
            attention=attention,
            batch=batch,
        )

    try:
        return capture("eager" if is_eager else None)
    except CaptureError as error:
        if error.code != ATTENTION_NOT_CALLED.code:
            raise
        return capture(None)


def group_outcomes(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    """Yield the outcomes of each table, and all."""
    for table in dict.fromkeys(one.table for one in outcomes):
        yield table.file, [one for one in outcomes if one.table == table]
    yield "all", list(outcomes)


def summarize(group: tuple[str, Sequence[Outcome]]) -> tuple[str, ...]:
    """Return the cells of a row."""
    title, outcomes = group
    errors = np.array([one.error_pct for one in outcomes])
    inside = sum(one.low <= one.measured <= one.high for one in outcomes)
    return (
        *(title, str(len(outcomes)), f"{np.median(abs(errors)):.1f} %", f"{np.median(errors):+.1f} %"),
        *(f"{np.quantile(abs(errors), 0.9):.0f} %", f"{inside} of {len(outcomes)}"),
        f"{median(one.high / one.low for one in outcomes):.2f}",
    )
