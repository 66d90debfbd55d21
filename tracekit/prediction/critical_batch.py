"""What a larger batch costs in convergence: the gradient noise scale (McCandlish et al. 2018, arXiv 1812.06162).

To the same loss, a run at batch B takes ``S_min (1 + B_noise / B)`` steps and ``E_min (1 + B / B_noise)`` samples or
tokens. So from one batch to another the work grows by ``(1 + B / B_noise) / (1 + B_0 / B_noise)``::

    B_noise 1M tokens    at 0.5M: 1.5 E_min    at 1M: 2 E_min, 1.33 times as much    at 4M: 5 E_min, 3.33 times

``B_noise`` is given, or estimated from a log of gradient norms at two batch sizes (their appendix A.1): the squared
norm of a gradient over B samples is on average ``G2 + S / B``, and ``B_noise = S / G2``.
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from predictors.given_files import describe_failure, read_regular_file
from tracekit.bounds import MAX_LENGTHS_BYTES
from tracekit.errors import RequestError
from tracekit.messages import Message, predictions
from tracekit.messages import requests as messages
from tracekit.prediction.question import parse_amount

LOG_SUFFIX = ".csv"
LOG_COLUMNS = ("batch", "grad_norm")


def compute_work_ratio(batch: float, reference: float, critical: float) -> float:
    """Compute how many times as many samples or tokens a batch needs to the same loss as a reference."""
    return (1 + batch / critical) / (1 + reference / critical)


def note_critical_batch(critical: float, unit: str) -> Message:
    """Note what is assumed of the convergence of other batches."""
    return predictions.CRITICAL_BATCH_ASSUMED(unit=unit, critical=critical)


def parse_critical_batch(given: float | str) -> float:
    """Parse a gradient noise scale: an amount such as ``1.5M``, or the path of a log of gradient norms.

    Raises:
        RequestError: It is neither, or the log tells none.
    """
    text = given if isinstance(given, str) else f"{given:.15g}"
    if text.endswith(LOG_SUFFIX):
        return read_noise_scale(Path(text))
    amount = parse_amount(text)
    if amount is None:
        raise RequestError(messages.CRITICAL_BATCH_MALFORMED(given=text))
    return amount


def read_noise_scale(path: Path) -> float:
    """Estimate the noise scale from a CSV with the columns ``batch`` and ``grad_norm``, a row for each gradient.

    Raises:
        RequestError: It can't be read, or hasn't gradients at two batch sizes that differ as noise makes them.
    """
    try:
        text = read_regular_file(path, MAX_LENGTHS_BYTES).decode()
        rows = [tuple(float(row[name]) for name in LOG_COLUMNS) for row in csv.DictReader(io.StringIO(text))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(messages.NORMS_UNREADABLE(path=str(path), reason=describe_failure(error))) from error
    scale = estimate_noise_scale((batch, norm) for batch, norm in rows)
    if scale is None:
        raise RequestError(messages.NORMS_TELL_NOTHING(path=str(path)))
    return scale


def estimate_noise_scale(norms: Iterable[tuple[float, float]]) -> float | None:
    """Estimate the noise scale from gradients' norms, each with its batch; the smallest and the largest batch count.

    Returns:
        None where there aren't two batch sizes, or the larger one's gradients aren't shorter.
    """
    table = np.array([*norms], np.float64).reshape(-1, 2)
    batches, squares = table[:, 0], table[:, 1] ** 2
    if not table.size or not np.isfinite(table).all() or batches.min() <= 0 or batches.min() == batches.max():
        return None
    small, large = batches.min(), batches.max()
    of_small, of_large = (float(squares[batches == size].mean()) for size in (small, large))
    signal = (large * of_large - small * of_small) / (large - small)
    noise = (of_small - of_large) / (1 / small - 1 / large)
    return float(noise / signal) if signal > 0 and noise > 0 else None
