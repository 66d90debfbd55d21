"""Drop measurements that are faster than the peaks of their GPU allow: a benchmark that skipped the work, or a typo."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Bools
from predictors.columns import build_law_inputs
from predictors.hardware import Hardware
from predictors.work import compute_arithmetic_us, compute_memory_bound_us, uses_matrix_units

MAX_PEAK_RATIO = 1.1
"""Arithmetic at the printed peak over a measured time. Of two million kernels of nine GPUs 219 are beyond
(aiconfigurator 0.12.0 and older), 217 of them of four cells of GPU and release; the fastest of the others reach 1.0."""
MAX_TRAFFIC_RATIO = 1.3
"""The same of compulsory traffic, in every law. Not of experts, of which fewer than the expected number may have been
hit."""


def find_impossible(law: str, table: pl.DataFrame, gpu: Hardware) -> Bools:
    """Return which measured kernels of one law on one GPU are faster than its peaks.

    Args:
        law: Name of the law.
        table: Rows from ``columns.prepare_kernels`` with ``latency_us``; those with a launch are never too fast.
        gpu: GPU that they ran on.
    """
    columns, time_us = build_law_inputs(table).to_columns(gpu), table["latency_us"].to_numpy()
    too_fast = np.zeros(table.height, dtype=np.bool_)
    if uses_matrix_units(law):
        too_fast |= compute_arithmetic_us(law, columns, gpu) > MAX_PEAK_RATIO * time_us
    if not law.startswith("moe"):
        too_fast |= compute_memory_bound_us(columns["work_bytes"], gpu) > MAX_TRAFFIC_RATIO * time_us
    return too_fast
