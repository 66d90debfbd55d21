"""Holds the law's rates of large products against published ones, of GPUs that were left out of the fit.

python -m tests.validation.studies.rates DATA...

A fifth of the GPUs at a time: those whose names follow each other go together, so that a GPU's nearest relatives are
left out with it. ``DATA`` as for ``python -m predictors.training fit``; sources: predictors/training/published.py.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from predictors.laws.law import LAWS
from predictors.training import published, traces
from predictors.training.fit import LAW_ROWS_PER_FRAMEWORK, LawMeasurements, load_measurements, sample_law_data
from predictors.training.fit_law import LawData, fit_law
from predictors.weights_file import LawConstants
from tests.validation.tables import print_table

FOLDS = 5
TOGETHER = 3
"""GPUs whose names follow each other."""


@dataclass(frozen=True)
class Rate:
    """A published rate beside the law's, TFLOP/s."""

    gpu: str
    dtype: str
    published: float
    predicted: float
    peak: float

    @property
    def error(self) -> float:
        """Of the prediction, as a share."""
        return self.predicted / self.published - 1


def main() -> None:
    """Prints a table of each law's GPUs and one of all."""
    data = load_measurements([*map(Path, sys.argv[1:]), traces.TRACES_TABLE, published.RATES_TABLE])
    for law in ("gemm half", "gemm fp32"):
        rates = sorted(left_out(law, data[law]), key=lambda rate: (rate.gpu, rate.dtype))
        print_table("| GPU | format | published | predicted | error | of the printed peak |", map(line, rates))
        print_table("| law | rates | GPUs | error, median | of it absolute | 90th percentile |", [summary(law, rates)])


def left_out(law: str, parts: Sequence[LawMeasurements]) -> Iterator[Rate]:
    """The law's rates of GPUs whose kernels nobody measured, each fold by a fit without it."""
    measured = [
        sample_law_data(part.select_shapes(test=False).fastest_versions, LAW_ROWS_PER_FRAMEWORK)
        for part in parts
        if not part.is_published_rate
    ]
    seen = {part.hardware.slug for part in measured}
    rated = [part for part in sorted(parts, key=lambda part: part.gpu) if part.is_published_rate]
    others = [sample_law_data(part, LAW_ROWS_PER_FRAMEWORK) for part in rated]
    everything, _ = fit_law(LAWS[law], measured + others)
    for fold in range(FOLDS):
        held = [i for i, part in enumerate(rated) if i // TOGETHER % FOLDS == fold and part.gpu not in seen]
        left = [other for i, other in enumerate(others) if i not in held]
        fitted, _ = fit_law(LAWS[law], measured + left, everything)
        for i in held:
            yield from rates(law, rated[i], others[i], fitted)


def rates(law: str, rated: LawMeasurements, part: LawData, fitted: LawConstants) -> Iterator[Rate]:
    """Of each format of a GPU."""
    constants = fitted.compute_constants(part.hardware, part.framework)
    time_us = LAWS[law].evaluate(part.columns, part.share, part.hardware, constants).time_us
    flops = 2.0 * published.RATE_GEMM_SIDE**3
    published_rates, predicted_rates = flops / part.latency_us / 1e6, flops / time_us / 1e6
    for dtype, rate, predicted in zip(rated.table["dtype"], published_rates, predicted_rates, strict=True):
        peak = (part.hardware.gpu.peak_flops(dtype) or np.nan) / 1e12
        yield Rate(rated.gpu, dtype, float(rate), float(predicted), peak)


def line(rate: Rate) -> str:
    """A row of the table."""
    share = rate.published / rate.peak
    return (
        f"| {rate.gpu} | {rate.dtype} | {rate.published:.4g} | {rate.predicted:.4g} | {rate.error:+.0%} | {share:.0%} |"
    )


def summary(law: str, rates: Sequence[Rate]) -> str:
    """A row for all of them."""
    errors = np.array([rate.error for rate in rates])
    size, gpus = np.abs(errors), len({rate.gpu for rate in rates})
    return (
        f"| {law} | {len(rates)} | {gpus} | {np.median(errors):+.1%} | {np.median(size):.1%} "
        f"| {np.quantile(size, 0.9):.0%} |"
    )


if __name__ == "__main__":
    main()
