"""Let a published rate decide how fast a GPU is on which no kernel of a law was measured.

The constants are fitted to rates beside kernels, without the learned correction: what that adds on a GPU that it never
saw would move its large products off the one rate that is known. An H20, whose matrix units are a quarter of an H100's,
was predicted at 108 TFLOP/s, where 142 were published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from predictors.columns import build_law_inputs
from predictors.model import evaluate_law
from predictors.training.fit_law import COOL_RATE_PRIOR
from predictors.weights_file import are_limited_alike, load_hardware

if TYPE_CHECKING:
    from predictors.training.fit import LawFit, LawMeasurements

STEPS = 4
"""In which the offsets settle: each moves the time by nearly as much."""
MAX_STEP = 0.3
"""Of an offset, as a logarithm; a time that hardly follows the rate isn't chased."""


def settle_rates(fit: LawFit, parts: Sequence[LawMeasurements]) -> LawFit:
    """Raise the compute rates of GPUs of which only rates are known, until law and correction together give these.

    Published rates are of GPUs that were idle before: the usual distance of measured GPUs from theirs is kept, but by a
    GPU whose matrix units are far slower than any measured one's of its class, as its power suffices for them (an H20's
    long products in fp8 keep 0.95 of its peak, as its published rate in 16 bits is 0.96). A rate
    that was reached can be reached; that it wasn't exceeded says little, for the board's power throttles a long run of
    large products, and jobs less (those on an A10 were 13 % too slow by its rate, 6 % without).

    Args:
        fit: Fit of a law with its corrections.
        parts: What it was fitted to.
    """
    rates = [part for part in parts if part.is_published_rate]
    known = [_compare_with_rate(fit, part) for part in rates if part.gpu in fit.fitted.gpu]
    usual = float(np.median(known)) if known else COOL_RATE_PRIOR[0]
    unmeasured = [part for part in rates if part.gpu in fit.fitted.rated and not _has_sibling(fit, part)]
    least = fit.fitted.rated
    for _ in range(STEPS):
        rated = {
            part.gpu: _move_offset(fit, part, usual * _is_like_measured(fit, part), least[part.gpu]["compute"])
            for part in unmeasured
        }
        fit = replace(fit, fitted=replace(fit.fitted, rated=fit.fitted.rated | rated))
    return fit


def _has_sibling(fit: LawFit, part: LawMeasurements) -> bool:
    """Whether a sibling was measured, which says more: a B200's products were 4 % off by its siblings, 8 % by its rate.

    An A100's, which has none, were 13 % off without its rate, 4 % with it.
    """
    return fit.weights.has_sibling(fit.law, part.hardware)


def _is_like_measured(fit: LawFit, part: LawMeasurements) -> bool:
    """Whether the same resources limit a GPU and a measured one of its class, or none of its class was measured."""
    measured = map(load_hardware, fit.fitted.gpu)
    alike = [gpu for gpu in measured if gpu.tensor_class == part.hardware.tensor_class]
    return not alike or any(are_limited_alike(fit.law, part.hardware, gpu) for gpu in alike)


def _move_offset(fit: LawFit, part: LawMeasurements, usual: float, least: float) -> dict[str, float]:
    offset = fit.fitted.rated[part.gpu]
    step = float(np.clip(_compare_with_rate(fit, part) - usual, -MAX_STEP, MAX_STEP))
    return offset | {"compute": max(offset["compute"] + step, least)}


def _compare_with_rate(fit: LawFit, part: LawMeasurements) -> float:
    """Return the logarithm of the predicted over the published time, the mean of several formats."""
    time_us = evaluate_law(build_law_inputs(part.table), fit.law, part.hardware, fit.weights)[1]
    return float(np.mean(np.log(time_us / part.table["latency_us"].to_numpy())))
