"""Matrix products on AMD GPUs, of weights and of GPUs that the fit lacks.

AITER's tuner measured each weight with many numbers of tokens. Weights are left out whole, a fifth at a time, and each
GPU in turn; of NVIDIA's GPUs a sample of the rows is in every fit. The interval of a fifth has the width that the other
fifths need.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.model import evaluate_law
from predictors.result import NOTHING
from predictors.training import published, traces
from predictors.training.aiter import TUNED
from predictors.training.fit import TEST_FOLDS, LawFit, LawMeasurements, fit_law_and_corrections, load_measurements
from predictors.training.views import build_shown_inputs, show
from predictors.training.widths import compute_measured_width
from tests.validation.study import KERNEL_DATA, find_input, format_table

INPUTS = (KERNEL_DATA,)
LAWS = ("gemm fp8_block", "gemm fp8", "gemm half", "gemm nvfp4")
OTHER_GPUS, MAX_OTHER_ROWS = ("a100-sxm-80gb", "h100-sxm", "b200"), 3000
"""One of NVIDIA's GPUs of each class, and rows of each: as many as the constants of a law need."""
MIN_ROWS = 15
FEW_TOKENS = 64


@dataclass(frozen=True)
class Scored:
    """Products of one GPU and format, predicted by fits that lack their weights, or their GPU."""

    gpu: str
    dtype: str
    rows: pl.DataFrame

    @cached_property
    def errors(self) -> Floats:
        """Return log(predicted / measured)."""
        return np.asarray(np.log(self.rows["predicted_us"].to_numpy() / self.rows["latency_us"].to_numpy()))

    def format_error(self, only: pl.Expr | None = None) -> str:
        """Return median and 90th percentile of the error's magnitude, and the bias, in percent."""
        errors = self.errors if only is None else self.errors[self.rows.select(only)[:, 0].to_numpy()]
        if errors.size < MIN_ROWS:
            return "–"
        size = 100 * np.abs(np.expm1(errors))
        return f"{np.median(size):.1f}/{np.quantile(size, 0.9):.0f} {100 * np.median(np.expm1(errors)):+.0f}"

    def format_interval(self) -> tuple[str, str]:
        """Return the share inside of the interval that the other fifths make, and its upper end over the time."""
        fifth = self.rows["fifth"].to_numpy()
        widths = {
            one: compute_measured_width([np.abs(self.errors[fifth != one])])
            for one in np.unique(fifth)
            if (fifth != one).any()
        }
        if not widths:
            return "–", "–"
        inside = np.concatenate([np.abs(self.errors[fifth == one]) <= width for one, width in widths.items()])
        return f"{100 * inside.mean():.0f} %", f"x{np.exp(np.mean(list(widths.values()))):.2f}"


def run() -> str:
    """Return a table of weights left out, and one of GPUs left out."""
    data = find_input(KERNEL_DATA)
    measured = load_measurements([data, traces.TRACES_TABLE, published.RATES_TABLE])
    weights: list[tuple[Scored, Scored]] = []
    gpus: list[Scored] = []
    for law in LAWS:
        parts = [_thin(part) for part in measured[law] if _takes_part(part)]
        everything = fit_law_and_corrections(law, parts)
        weights += leave_weights_out(law, parts, everything)
        gpus += leave_gpus_out(law, parts, everything)
    return "\n".join(
        (
            "# Matrix products on AMD GPUs\n",
            "Errors: median and 90th percentile of the magnitude, and bias, in percent.\n",
            "## Weights left out\n",
            format_table(
                ("GPU", "format", "products", "library told", "up to 64 tokens", "nothing told", "inside", "high"),
                (format_weights(*pair) for pair in weights),
            ),
            "## GPU left out, the others in\n",
            format_table(("GPU", "format", "products", "library told", "up to 64 tokens"), map(format_gpu, gpus)),
        )
    )


def _takes_part(part: LawMeasurements) -> bool:
    return part.hardware.gpu.vendor == "amd" or part.board in OTHER_GPUS


def _thin(part: LawMeasurements) -> LawMeasurements:
    """A GPU's measurements; of NVIDIA's a sample."""
    if part.hardware.gpu.vendor == "amd" or part.table.height <= MAX_OTHER_ROWS:
        return part
    return LawMeasurements(part.gpu, part.table.gather_every(-(-part.table.height // MAX_OTHER_ROWS)))


def leave_weights_out(
    law: str, parts: Sequence[LawMeasurements], everything: LawFit
) -> Iterator[tuple[Scored, Scored]]:
    """Yield the products of each GPU and format, predicted by library and with nothing told."""
    found: dict[str, list[pl.DataFrame]] = {}
    for fifth in range(TEST_FOLDS):
        turned = [LawMeasurements(p.gpu, p.table.with_columns(fold=pl.col("fold") + fifth)) for p in parts]
        fitted = fit_law_and_corrections(law, turned, everything, _list_amd_architectures(parts))
        for part in turned:
            if _is_tuned(part):
                test = part.select_shapes(test=True).table.filter(pl.col("source") == TUNED)
                found.setdefault(part.gpu, []).append(
                    predict(law, LawMeasurements(part.gpu, test), fitted).with_columns(fifth=pl.lit(fifth))
                )
    for gpu, rows in found.items():
        for (dtype,), one in pl.concat(rows).group_by("dtype", maintain_order=True):
            if one.height >= MIN_ROWS:
                told, untold = (one.with_columns(predicted_us=name) for name in ("library_us", "nothing_us"))
                yield Scored(gpu, str(dtype), told), Scored(gpu, str(dtype), untold)


def leave_gpus_out(law: str, parts: Sequence[LawMeasurements], everything: LawFit) -> Iterator[Scored]:
    """Yield the products of each GPU, by fits that lack it and know another of AMD's."""
    tuned = {part.gpu for part in parts if _is_tuned(part)}
    for part in parts:
        others = [one for one in parts if one.gpu != part.gpu]
        if part.gpu in tuned and any(one.hardware.gpu.vendor == "amd" for one in others):
            fitted = fit_law_and_corrections(law, others, everything, _list_amd_architectures(parts))
            rows = predict(law, part, fitted).filter(pl.col("source") == TUNED)
            for (dtype,), one in rows.group_by("dtype", maintain_order=True):
                if one.height >= MIN_ROWS:
                    yield Scored(part.gpu, str(dtype), one.with_columns(predicted_us="library_us"))


def _is_tuned(part: LawMeasurements) -> bool:
    return not part.is_published_rate and TUNED in part.table["source"].unique().to_list()


def _list_amd_architectures(parts: Sequence[LawMeasurements]) -> set[str]:
    return {part.hardware.architecture for part in parts if part.hardware.gpu.vendor == "amd"}


def predict(law: str, part: LawMeasurements, fitted: LawFit) -> pl.DataFrame:
    """Return the rows with `library_us` and `nothing_us`, the times with so much told."""
    shown = {"library": part.table, "nothing": show(part.table, NOTHING)}
    times = {
        f"{told}_us": evaluate_law(build_shown_inputs(part.table, rows), law, part.hardware, fitted.weights)[1]
        for told, rows in shown.items()
    }
    return part.table.select("dtype", "m", "source", "latency_us").with_columns(
        pl.Series(name, time_us) for name, time_us in times.items()
    )


def format_weights(told: Scored, untold: Scored) -> tuple[str, ...]:
    """Return the cells of a GPU and format whose weights were left out."""
    few = pl.col("m") <= FEW_TOKENS
    errors = (told.format_error(), told.format_error(few), untold.format_error())
    return told.gpu, told.dtype, f"{told.rows.height:,}", *errors, *told.format_interval()


def format_gpu(one: Scored) -> tuple[str, ...]:
    """Return the cells of a GPU that was left out."""
    few = pl.col("m") <= FEW_TOKENS
    return one.gpu, one.dtype, f"{one.rows.height:,}", one.format_error(), one.format_error(few)
