"""Models that never ran, captured from their Hugging Face configs, against the times that NeuSight measured.

Its forward passes, and forward and backward passes, in fp32 by eager PyTorch 2.1, with attention as transformers
computed it then. The configs are NeuSight's; transformers builds the models without weights. A row is what a command
says: ``tracekit predict CONFIG.json --gpu GPU --dtype fp32 --attention eager --seq TOKENS --batch SEQUENCES``, with
``--train`` where the label has it.
"""

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import polars as pl

import tracekit
from predictors import load_gpu
from tests.validation.studies.whole_jobs.fp32_models import (
    FITTED,
    LABELS,
    UNSEEN,
    format_model,
    read_label,
    summarize_gpus,
)
from tests.validation.study import NEUSIGHT, MissingInputError, find_input, format_table
from tracekit.capturing.steps import capture_named
from tracekit.errors import CaptureError
from tracekit.request.program_options import ProgramOptions
from tracekit.trace import Trace

INPUTS = (NEUSIGHT,)
CONFIGS = Path("scripts/asplos/data/DLmodel_configs")


def run() -> str:
    """Return the errors of each GPU, and a row for each model."""
    if find_spec("transformers") is None:
        raise MissingInputError("install transformers")
    checkout = find_input(NEUSIGHT)
    rows = [row for gpu in (*FITTED, *UNSEEN) for row in predict_models(checkout, gpu)]
    table = pl.DataFrame(rows, schema=["gpu", "model", "measured", "predicted", "low", "high"], orient="row")
    table = table.with_columns(error=100 * (pl.col("predicted") / pl.col("measured") - 1))
    everything = table.with_columns(gpu=pl.lit("all"))
    return "\n".join(
        (
            "# Models captured from their configs\n",
            format_table(
                ("GPU", "models", "mean absolute error, %", "worst", "bias", "in interval"),
                [*summarize_gpus(table), *summarize_gpus(everything)],
            ),
            format_table(
                ("GPU", "model", "measured, ms", "predicted (90 % interval)", "error"),
                (format_model(*row) for row in table.iter_rows()),
            ),
            "Source: github.com/sitar-lab/NeuSight at 6945927d, scripts/asplos.\n",
        )
    )


def predict_models(checkout: Path, gpu: str) -> Iterator[tuple[str, str, float, float, float, float]]:
    """Yield GPU, model, and in ms the measured time, the predicted one and its interval."""
    slug = load_gpu(gpu).slug
    for label in sorted((checkout / LABELS / gpu).glob("*.json")):
        name, mode, tokens, batch, *option = label.stem.split("-")
        if option:
            continue  # several GPUs, or fused operators
        measured = read_label(label)
        program = capture_model(checkout / CONFIGS / f"{name}.json", int(batch), int(tokens), mode == "train")
        if measured is not None and program is not None:
            step = tracekit.predict(program, gpu=slug)[slug]
            yield slug, label.stem, measured, step.step.step_time_us / 1e3, step.low_us / 1e3, step.high_us / 1e3


@cache
def capture_model(config: Path, batch: int, tokens: int, training: bool) -> Trace | None:
    """Capture a model's step as the command does; None if transformers has no language model of that kind."""
    options = ProgramOptions(train=training, seq=tokens, dtype="fp32", attention="eager")
    try:
        return capture_named(str(config), options.capture, batch)[0]
    except CaptureError:
        return None
