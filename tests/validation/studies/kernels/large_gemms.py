"""Published rates of large GEMMs, by the law alone, of fits that left the GPU and its nearest relatives out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import PredefinedSplit

from predictors.laws.law import LAWS
from predictors.training import published, traces
from predictors.training.fit import LAW_ROWS_PER_KERNEL, LawMeasurements, load_measurements, sample_law_data
from predictors.training.fit_law import LawData, fit_law
from predictors.weights_file import LawConstants
from tests.validation.study import KERNEL_DATA, find_input, format_table

INPUTS = (KERNEL_DATA,)

RATED_LAWS = ("gemm half", "gemm fp32")
FOLDS = 5
NEIGHBOURS = 3
"""GPUs of consecutive names in one fold, so that a GPU's nearest relatives are left out with it."""


@dataclass(frozen=True)
class Rate:
    """A published rate beside the law's, in TFLOP/s."""

    gpu: str
    dtype: str
    published: float
    predicted: float
    peak: float

    @property
    def error(self) -> float:
        """Return the relative error."""
        return self.predicted / self.published - 1


def run() -> str:
    """Return two tables for each law."""
    data = find_input(KERNEL_DATA)
    measured = load_measurements([data, traces.TRACES_TABLE, published.RATES_TABLE])
    tables = ["# Published rates of large GEMMs, GPU left out\n"]
    for law in RATED_LAWS:
        rates = sorted(predict_left_out(law, measured[law]), key=lambda rate: (rate.gpu, rate.dtype))
        tables += [
            f"## {law}\n",
            format_table(
                ("law", "rates", "GPUs", "error, median", "absolute, median", "90th percentile"),
                [summarize_rates(law, rates)],
            ),
            format_table(
                ("GPU", "format", "published", "predicted", "error", "of the printed peak"), map(format_rate, rates)
            ),
        ]
    tables.append("Sources: predictors/training/published.py.\n")
    return "\n".join(tables)


def predict_left_out(law: str, parts: Sequence[LawMeasurements]) -> Iterator[Rate]:
    """Yield the law's rates of GPUs whose kernels nobody measured, each fold by a fit without it."""
    measured = [
        sample_law_data(part.select_shapes(test=False), LAW_ROWS_PER_KERNEL)
        for part in parts
        if not part.is_published_rate
    ]
    seen = {part.hardware.slug for part in measured}
    rated = [part for part in sorted(parts, key=lambda part: part.gpu) if part.is_published_rate]
    others = [sample_law_data(part, LAW_ROWS_PER_KERNEL) for part in rated]
    everything, _ = fit_law(LAWS[law], measured + others)
    # Of GPUs whose kernels were measured the rates are in every fit: fold -1.
    folds = PredefinedSplit([-1 if part.gpu in seen else i // NEIGHBOURS % FOLDS for i, part in enumerate(rated)])
    for left, held in folds.split():
        fitted, _ = fit_law(LAWS[law], measured + [others[i] for i in left], everything)
        for i in held:
            yield from compute_rates(law, rated[i], others[i], fitted)


def compute_rates(law: str, rated: LawMeasurements, part: LawData, fitted: LawConstants) -> Iterator[Rate]:
    """Yield the rate of each format of a GPU."""
    constants = fitted.compute_constants(part.hardware, part.framework)
    time_us = LAWS[law].evaluate(part.columns, part.share, part.hardware, constants).time_us
    flops = 2.0 * published.RATE_GEMM_SIDE**3
    published_rates, predicted_rates = flops / part.latency_us / 1e6, flops / time_us / 1e6
    for dtype, rate, predicted in zip(rated.table["dtype"], published_rates, predicted_rates, strict=True):
        peak = (part.hardware.gpu.peak_flops(dtype) or np.nan) / 1e12
        yield Rate(rated.gpu, dtype, float(rate), float(predicted), peak)


def format_rate(rate: Rate) -> tuple[str, ...]:
    """Return the cells of a rate."""
    rates = (f"{rate.published:.4g}", f"{rate.predicted:.4g}")
    return rate.gpu, rate.dtype, *rates, f"{rate.error:+.0%}", f"{rate.published / rate.peak:.0%}"


def summarize_rates(law: str, rates: Sequence[Rate]) -> tuple[str, ...]:
    """Return the cells of all rates of a law."""
    errors = np.array([rate.error for rate in rates])
    size, gpus = np.abs(errors), len({rate.gpu for rate in rates})
    return (
        law,
        str(len(rates)),
        str(gpus),
        f"{np.median(errors):+.1%}",
        f"{np.median(size):.1%}",
        f"{np.quantile(size, 0.9):.0%}",
    )
